//! Frames against a reader that has the whole file and no cleverness; every cut into pieces.

use proptest::prelude::*;

use super::*;

const MAX: usize = 64;

/// A frame that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    offset: u64,
    end: u64,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Record { id: Option<String>, document: Vec<u8>, document_offset: u64, raw: Vec<u8> },
    TooLong { id: Option<String>, bytes: u64, document_offset: u64, raw: Vec<u8> },
    BadAction { raw: Vec<u8> },
    Skipped(Operation),
    Unread(Unread),
}

fn owned(frame: &Frame<'_>) -> Owned {
    let what = match frame {
        Frame::Record(Record { offset: _, end: _, action, document, document_offset, raw }) => {
            let (id, raw, document_offset) =
                (action.as_ref().and_then(|it| it.id.clone()), raw.to_vec(), *document_offset);
            match *document {
                Document::Line(line) => What::Record { id, document: line.to_vec(), document_offset, raw },
                Document::TooLong { bytes } => What::TooLong { id, bytes, document_offset, raw },
            }
        }
        Frame::BadAction { offset: _, end: _, raw } => What::BadAction { raw: raw.to_vec() },
        Frame::Skipped { offset: _, end: _, operation } => What::Skipped(*operation),
    };
    Owned { offset: frame.offset(), end: frame.end(), what }
}

/// All frames of a file that arrives in these pieces.
fn frames(framing: Framing, pieces: &[&[u8]], offset: u64) -> Vec<Owned> {
    let mut framer = Framer::new(framing, MAX, offset);
    let mut found = Vec::new();
    for piece in pieces {
        framer.push(piece);
        while let Some(frame) = framer.next_frame() {
            found.push(owned(&frame));
        }
    }
    match framer.finish() {
        Finish::Clean => (),
        Finish::Frame(frame) => found.push(owned(&frame)),
        Finish::Unread { offset, bytes, why } => {
            found.push(Owned { offset, end: offset + bytes, what: What::Unread(why) });
            assert_eq!(framer.position(), offset);
        }
    }
    found
}

/// The same by the plainest means: the file as a list of lines.
fn frames_of_whole_file(framing: Framing, file: &[u8]) -> Vec<Owned> {
    let mut found = Vec::new();
    let mut pending: Option<(usize, Action)> = None;
    let mut start = 0;
    while start < file.len() {
        let line_feed = file[start..].iter().position(|byte| *byte == b'\n').map(|at| start + at);
        let (text_end, end) = line_feed.map_or((file.len(), file.len()), |at| (at, at + 1));
        let full = &file[start..text_end];
        let too_long = MAX < full.len();
        let text = if too_long { &full[..MAX] } else { full.strip_suffix(b"\r").unwrap_or(full) };
        let blank = !too_long && text.iter().all(|byte| b" \t\r".contains(byte));
        let whole = std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<serde_json::Value>(text).is_ok());
        let offset = pending.as_ref().map_or(start, |(offset, _)| *offset);
        if blank && pending.is_none() {
            start = end;
            continue;
        }
        if line_feed.is_none() && (too_long || !whole) {
            found.push(Owned { offset: offset as u64, end: end as u64, what: What::Unread(Unread::CutLine) });
            return found;
        }
        let raw = file[offset..start + text.len()].to_vec();
        let what = match (pending.take(), framing) {
            (Some((_, Action { operation: Operation::Update, .. })), _) => What::Skipped(Operation::Update),
            (None, Framing::EsBulk) => match Action::parse(text).filter(|_| !too_long) {
                None => What::BadAction { raw },
                Some(Action { operation: Operation::Delete, .. }) => What::Skipped(Operation::Delete),
                Some(action) => {
                    pending = Some((start, action));
                    start = end;
                    continue;
                }
            },
            (action, _) => {
                let id = action.and_then(|(_, action)| action.id);
                let document_offset = start as u64;
                if too_long {
                    What::TooLong { id, bytes: full.len() as u64, document_offset, raw }
                } else {
                    What::Record { id, document: text.to_vec(), document_offset, raw }
                }
            }
        };
        found.push(Owned { offset: offset as u64, end: end as u64, what });
        start = end;
    }
    if let Some((offset, _)) = pending {
        found.push(Owned { offset: offset as u64, end: file.len() as u64, what: What::Unread(Unread::NoDocument) });
    }
    found
}

/// Frames as short texts.
#[track_caller]
fn check(framing: Framing, file: &str, want: &[&str]) {
    let found: Vec<_> = frames(framing, &[file.as_bytes()], 0)
        .into_iter()
        .map(|Owned { offset, end, what }| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let what = match what {
                What::Record { id: None, document, .. } => text(&document),
                What::Record { id: Some(id), document, .. } => format!("{id} {}", text(&document)),
                What::TooLong { bytes, .. } => format!("too long {bytes}"),
                What::BadAction { raw } => format!("bad action {}", text(&raw)),
                What::Skipped(operation) => format!("skipped {operation:?}"),
                What::Unread(why) => format!("unread {why:?}"),
            };
            format!("{offset}..{end} {what}")
        })
        .collect();
    assert_eq!(found, want);
}

#[test]
fn ndjson_lines_are_records() {
    check(Framing::Ndjson, "", &[]);
    check(Framing::Ndjson, "{}\n{\"a\":1}\n", &["0..3 {}", "3..11 {\"a\":1}"]);
    check(Framing::Ndjson, "\n{}\r\n \t\r\n\n{}\n", &["1..5 {}", "10..13 {}"]);
    check(Framing::Ndjson, "rubbish\n{}\n", &["0..8 rubbish", "8..11 {}"]);
    check(Framing::Ndjson, "{}", &["0..2 {}"]);
    check(Framing::Ndjson, "{}\n{", &["0..3 {}", "3..4 unread CutLine"]);
    check(Framing::Ndjson, "{}\n  ", &["0..3 {}"]);
}

#[test]
fn a_byte_order_mark_at_the_start_of_a_file_belongs_to_no_record() {
    check(Framing::Ndjson, "\u{feff}{}\n{}\n", &["3..6 {}", "6..9 {}"]);
    check(Framing::Ndjson, "\u{feff}{}", &["3..5 {}"]);
    check(Framing::Ndjson, "\u{feff}", &[]);
    check(Framing::Ndjson, "\u{feff}\n{}\n", &["4..7 {}"]);
    check(Framing::EsBulk, "\u{feff}{\"index\":{\"_id\":\"a\"}}\n{}\n", &["3..28 a {}"]);
    // Elsewhere it is a fault, and stays one.
    check(Framing::Ndjson, "{}\n\u{feff}{}\n", &["0..3 {}", "3..9 \u{feff}{}"]);
    let file = "\u{feff}{}\n{}\n".as_bytes();
    for cut in 0..file.len() {
        let found = frames(Framing::Ndjson, &[&file[..cut], &file[cut..]], 0);
        assert_eq!(found.iter().map(|it| (it.offset, it.end)).collect::<Vec<_>>(), [(3, 6), (6, 9)]);
    }
    // Also when the mark makes the line one over the limit, however it is cut.
    let long = format!("\u{feff}{}\n", "x".repeat(MAX - 2));
    for cut in 0..long.len() {
        let found = frames(Framing::Ndjson, &[&long.as_bytes()[..cut], &long.as_bytes()[cut..]], 0);
        assert!(matches!(found[..], [Owned { what: What::TooLong { .. }, .. }]), "{cut}: {found:?}");
    }
}

#[test]
fn bulk_pairs_are_records() {
    let file = "{\"index\":{\"_id\":\"a\"}}\n{}\n\n{\"create\":{\"_id\":\"b\"}}\r\n{}\r\n";
    check(Framing::EsBulk, file, &["0..25 a {}", "26..54 b {}"]);
    check(
        Framing::EsBulk,
        "{\"delete\":{}}\n{\"update\":{}}\n{}\n",
        &["0..14 skipped Delete", "14..31 skipped Update"],
    );
    // Only the line that can not be read is lost: the next one is tried as an action.
    check(Framing::EsBulk, "{\"ind\n{\"index\":{\"_id\":\"a\"}}\n{}\n", &["0..6 bad action {\"ind", "6..31 a {}"]);
    // A bad document belongs to its action, a blank one too.
    check(Framing::EsBulk, "{\"index\":{\"_id\":\"a\"}}\n\n{\"delete\":{}}\n", &["0..23 a ", "23..37 skipped Delete"]);
}

#[test]
fn the_end_of_a_bulk_file_may_be_cut() {
    check(Framing::EsBulk, "{\"index\":{}}", &["0..12 unread NoDocument"]);
    check(Framing::EsBulk, "{\"index\":{}}\n", &["0..13 unread NoDocument"]);
    check(Framing::EsBulk, "{\"index\":{}}\n{\"a\"", &["0..17 unread CutLine"]);
    check(Framing::EsBulk, "{\"index\":{}}\n{}", &["0..15 {}"]);
    check(Framing::EsBulk, "{\"delete\":{}}", &["0..13 skipped Delete"]);
}

#[test]
fn a_line_over_the_limit_is_passed_by_in_bounded_memory() {
    let mut framer = Framer::new(Framing::EsBulk, MAX, 0);
    framer.push(b"{\"index\":{\"_id\":\"a\"}}\n{\"a\":\"");
    assert_eq!(framer.next_frame(), None);
    for _ in 0..1000 {
        framer.push(&[b'x'; 1000]);
        assert_eq!(framer.next_frame(), None);
        assert!(framer.lines.memory_bytes() < 4_000, "{}", framer.lines.memory_bytes());
    }
    framer.push(b"\"}\n{\"delete\":{}}\n");
    let frame = framer.next_frame().map(|frame| owned(&frame)).unwrap();
    let What::TooLong { id, bytes, raw, .. } = frame.what else { panic!("{frame:?}") };
    assert_eq!((id.as_deref(), bytes, frame.end), (Some("a"), 1_000_008, 1_000_031));
    assert!(raw.starts_with(b"{\"index\":{\"_id\":\"a\"}}\n{\"a\":\"xxx"));
    let next = framer.next_frame().map(|frame| owned(&frame)).unwrap();
    assert_eq!(next, Owned { offset: 1_000_031, end: 1_000_045, what: What::Skipped(Operation::Delete) });
}

/// Files made of pieces that hit the rules, and of noise.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just("{\"index\":{\"_id\":\"a\"}}"),
        1 => Just("{\"create\":{\"_id\":7}}"),
        1 => Just("{\"update\":{}}"),
        1 => Just("{\"delete\":{}}"),
        4 => Just("{\"q\":\"1\"}"),
        1 => Just("{\"q\""),
        6 => Just("\n"),
        1 => Just("\r\n"),
        1 => Just(" "),
        1 => Just("é"),
        1 => Just("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    ];
    let pieces = proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes());
    let noise = proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'{'), any::<u8>()], 0..200);
    prop_oneof![3 => pieces, 1 => noise]
}

fn framing() -> impl Strategy<Value = Framing> {
    prop_oneof![Just(Framing::Ndjson), Just(Framing::EsBulk)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn pieces_change_nothing(file in file(), framing in framing(), mut cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let want = frames_of_whole_file(framing, &file);
        let mut cuts: Vec<_> = cuts.drain(..).map(|cut| cut.index(file.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut start = 0;
        for cut in cuts {
            pieces.push(&file[start..cut]);
            start = cut;
        }
        pieces.push(&file[start..]);
        prop_assert_eq!(frames(framing, &pieces, 0), want.clone());
        let bytes: Vec<_> = file.chunks(1).collect();
        prop_assert_eq!(frames(framing, &bytes, 0), want);
    }

    /// Frames come in order, do not overlap, and leave only blanks out.
    #[test]
    fn frames_cover_the_file(file in file(), framing in framing()) {
        let mut covered = 0;
        for frame in frames(framing, &[&file], 0) {
            let offset = usize::try_from(frame.offset).unwrap();
            prop_assert!(covered <= offset && frame.offset < frame.end);
            prop_assert!(file[covered..offset].iter().all(u8::is_ascii_whitespace));
            covered = usize::try_from(frame.end).unwrap();
        }
        prop_assert!(covered <= file.len() && file[covered..].iter().all(u8::is_ascii_whitespace));
    }

    /// A reader that begins again at the end of any frame meets the rest.
    #[test]
    fn reading_goes_on_anywhere(file in file(), framing in framing()) {
        let all = frames(framing, &[&file], 0);
        for (index, frame) in all.iter().enumerate().filter(|(_, frame)| !matches!(frame.what, What::Unread(_))) {
            let rest = &file[usize::try_from(frame.end).unwrap()..];
            prop_assert_eq!(&frames(framing, &[rest], frame.end)[..], &all[index + 1..]);
        }
    }

    /// So does one that begins again where a framer says that it stands, whatever was pushed.
    #[test]
    fn reading_goes_on_at_the_position(file in file(), framing in framing(), cut in any::<prop::sample::Index>()) {
        let all = frames(framing, &[&file], 0);
        let (head, _) = file.split_at(cut.index(file.len() + 1));
        let mut framer = Framer::new(framing, MAX, 0);
        framer.push(head);
        let mut found = Vec::new();
        while let Some(frame) = framer.next_frame() {
            found.push(owned(&frame));
        }
        let position = framer.position();
        found.extend(frames(framing, &[&file[usize::try_from(position).unwrap()..]], position));
        prop_assert_eq!(found, all);
    }
}
