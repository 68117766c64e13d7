//! Coalescing, order of answers, retries with the same token, and what is said when nobody knows.

mod fake;

use std::collections::HashSet;
use std::time::Duration;

use fake::{CLUSTER, Hold, Node, Step, config, far, key, near, token};
use photon_client::{Client, ClientError};
use photon_types::{CHUNK_COMMANDS_MAX, Command, DeleteReason, Holder, Outcome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_become_few_chunks() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    // While as many chunks as may be are held, all other calls gather behind them.
    let in_flight_max = 8;
    let holds: Vec<_> = (0..in_flight_max).map(|_| Hold::new()).collect();
    node.script(holds.iter().cloned().map(Step::Hold));
    let insert = |i: u64| {
        let client = client.clone();
        tokio::spawn(async move { client.insert(key(i), token(i), far()).await })
    };
    let mut calls = Vec::new();
    for (i, hold) in holds.iter().enumerate() {
        calls.push(insert(i as u64));
        hold.reached().await;
    }
    let (entered, mut all_entered) = tokio::sync::mpsc::channel(1000);
    for i in in_flight_max as u64..1000 {
        let (client, entered) = (client.clone(), entered.clone());
        calls.push(tokio::spawn(async move {
            let call = client.insert(key(i), token(i), far());
            tokio::pin!(call);
            // Polled once, it stands in the client's queue.
            assert!(matches!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await,
                std::task::Poll::Pending
            ));
            entered.send(()).await.unwrap();
            drop(entered);
            call.await
        }));
    }
    drop(entered);
    while all_entered.recv().await.is_some() {}
    holds.iter().for_each(Hold::release);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().outcome, Outcome::Inserted);
    }
    let chunks = node.chunks();
    assert_eq!(chunks.iter().map(Vec::len).sum::<usize>(), 1000, "each command was sent once");
    assert!(chunks.len() <= in_flight_max + 2, "{} chunks for 1000 calls", chunks.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_larger_than_a_chunk_is_split_and_answered_in_order() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    let count = 2 * CHUNK_COMMANDS_MAX as u64 + 500;
    let inserts = (0..count).filter(|i| i % 3 == 0).map(|i| Command::Insert { key: key(i), token: token(i) }).collect();
    assert!(client.submit(inserts, far()).await.into_iter().all(|answer| answer.unwrap().outcome == Outcome::Inserted));
    let before = node.chunks().len();
    let answers = client.lookup_many((0..count).map(key), far()).await;
    assert_eq!(answers.len() as u64, count);
    for (i, answer) in (0..).zip(answers) {
        let present = Outcome::Present { winner: Holder::Token(token(i)) };
        assert_eq!(answer.unwrap().outcome, if i % 3 == 0 { present } else { Outcome::Absent }, "look-up {i}");
    }
    assert_eq!(node.chunks().len() - before, 3);
    assert!(client.submit(vec![], far()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_queue_holds_goes_through_in_parts() {
    let node = Node::start().await;
    let mut config = config(&[&node]);
    (config.limits.chunk_commands_max, config.limits.queue_commands_max) = (10, 20);
    let client = Client::connect(config).await.unwrap();
    let inserts = (0..1000).map(|i| Command::Insert { key: key(i), token: token(i) }).collect();
    let answers = client.submit(inserts, far()).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().outcome == Outcome::Inserted));
    assert!(node.chunks().iter().all(|chunk| chunk.len() <= 10));
}

/// Each way in which an attempt can end without a clear answer, with the command applied or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_token_asks_again_after_an_unclear_answer() {
    for applied in [false, true] {
        for step in [Step::Unknown { applied }, Step::Drop { applied }] {
            let node = Node::start().await;
            let client = Client::connect(config(&[&node])).await.unwrap();
            node.script([step.clone()]);
            let answer = client.insert(key(1), token(1), far()).await.unwrap();
            assert_eq!((answer.outcome, answer.ambiguous), (Outcome::Inserted, true), "{step:?}");
            let insert = vec![Command::Insert { key: key(1), token: token(1) }];
            assert_eq!(node.chunks(), vec![insert.clone(), insert], "{step:?}");
            let answer = client.lookup(key(1), far()).await.unwrap();
            assert!(!answer.ambiguous, "the next command begins anew");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_say_nothing_happened_are_not_ambiguous() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    let certain = [
        Step::NotLeader { hint: node.address.clone() },
        Step::NotLeader { hint: String::new() },
        Step::NotLeader { hint: "not an address".into() },
        Step::Overloaded,
        Step::Overloaded,
        Step::Unhealthy,
        Step::KeyRulesMissing,
    ];
    let count = certain.len();
    node.script(certain);
    let answer = client.delete(key(1), token(1), DeleteReason::LineMissing, far()).await.unwrap();
    assert_eq!((answer.outcome, answer.ambiguous), (Outcome::Absent, false));
    assert_eq!(node.chunks().len(), count + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_delete_says_that_the_first_may_have_done_it() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    client.insert(key(1), token(1), far()).await.unwrap();
    // The mark outlives certain answers in between.
    node.script([Step::Drop { applied: true }, Step::Overloaded, Step::NotLeader { hint: String::new() }]);
    let answer = client.delete(key(1), token(1), DeleteReason::LineMissing, far()).await.unwrap();
    assert_eq!((answer.outcome, answer.ambiguous), (Outcome::Absent, true));

    client.insert(key(2), token(2), far()).await.unwrap();
    node.script([Step::Unknown { applied: true }]);
    let answer = client.forget(key(2), token(2), far()).await.unwrap();
    assert_eq!((answer.outcome, answer.ambiguous), (Outcome::Mismatch { winner: Holder::Forgotten }, true));
}

/// Commands of one unclear chunk are packed anew with others: each keeps its own mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mark_of_an_unclear_attempt_survives_repacking() {
    let node = Node::start().await;
    let mut config = config(&[&node]);
    (config.limits.chunk_commands_max, config.limits.chunks_in_flight_max) = (4, 1);
    let client = Client::connect(config).await.unwrap();
    node.script([Step::Unknown { applied: true }]);
    let deletes = (0..6).map(|i| Command::Delete { key: key(i), token: token(i), reason: DeleteReason::LineMissing });
    let answers = client.submit(deletes.collect(), far()).await;
    let marks: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().ambiguous).collect();
    assert_eq!(marks, [true, true, true, true, false, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_deadline_what_may_have_happened_is_unknown_and_the_rest_is_not() {
    let node = Node::start().await;
    let mut config = config(&[&node]);
    (config.limits.chunk_commands_max, config.limits.chunks_in_flight_max) = (2, 1);
    let client = Client::connect(config).await.unwrap();
    // The first chunk hangs after it was applied; the second waits for room behind it.
    let hold = Hold::new();
    node.script([Step::Hold(hold.clone())]);
    let inserts = (0..4).map(|i| Command::Insert { key: key(i), token: token(i) }).collect();
    let answers = client.submit(inserts, near()).await;
    for answer in &answers[..2] {
        assert!(matches!(answer, Err(ClientError::Unknown { .. })), "{answer:?}");
    }
    for answer in &answers[2..] {
        assert!(matches!(answer, Err(ClientError::Overloaded { .. })), "{answer:?}");
    }
    // A later call with the same token learns what had happened.
    hold.release();
    assert_eq!(client.insert(key(0), token(0), far()).await.unwrap().outcome, Outcome::Inserted);
    assert!(!node.table.lock().unwrap().rows.contains_key(&key(2)), "what was never sent did not happen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_unclear_no_refusal_makes_it_a_failure() {
    for refusal in [Step::KeyRulesDiffer, Step::WrongCluster, Step::InvalidArgument] {
        let node = Node::start().await;
        let client = Client::connect(config(&[&node])).await.unwrap();
        node.script([Step::Unknown { applied: true }]);
        node.script(std::iter::repeat_n(refusal.clone(), 10_000));
        let error = client.insert(key(1), token(1), near()).await.unwrap_err();
        assert!(matches!(error, ClientError::Unknown { .. }), "{refusal:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_at_the_door_ends_the_call_at_once() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    node.script([Step::InvalidArgument]);
    let error = client.insert(key(1), token(1), far()).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }) && error.to_string().contains("no such format"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_takes_too_long_is_asked_elsewhere() {
    let a = Node::start().await;
    let b = Node::start_with(a.table.clone(), CLUSTER).await;
    b.follow(&a.address);
    let mut config = config(&[&a, &b]);
    config.timings.attempt_timeout = Duration::from_millis(300);
    let client = Client::connect(config).await.unwrap();
    let hold = Hold::new();
    a.script([Step::Hold(hold.clone())]);
    let call = tokio::spawn(async move { client.insert(key(1), token(1), far()).await });
    hold.reached().await;
    a.follow(&b.address);
    b.lead();
    let answer = call.await.unwrap().unwrap();
    assert_eq!((answer.outcome, answer.ambiguous), (Outcome::Inserted, true));
    assert_eq!(b.chunks(), a.chunks(), "the same command, token and all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_given_up_leave_the_client_usable() {
    let node = Node::start().await;
    let mut config = config(&[&node]);
    (config.limits.chunk_commands_max, config.limits.queue_commands_max) = (4, 8);
    config.limits.chunks_in_flight_max = 1;
    let client = Client::connect(config).await.unwrap();
    let hold = Hold::new();
    node.script([Step::Hold(hold.clone())]);
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.insert(key(1), token(1), far()).await }
    });
    hold.reached().await;
    let given_up: Vec<_> = (2..20)
        .map(|i| {
            let client = client.clone();
            tokio::spawn(async move { client.insert(key(i), token(i), far()).await })
        })
        .collect();
    given_up.iter().for_each(|call| call.abort());
    for call in given_up {
        assert!(call.await.unwrap_err().is_cancelled());
    }
    hold.release();
    assert_eq!(first.await.unwrap().unwrap().outcome, Outcome::Inserted);
    let answers = client.lookup_many((0..100).map(key), far()).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_in_the_past_and_a_command_not_for_callers_are_errors() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    let past = tokio::time::Instant::now();
    assert!(matches!(client.insert(key(1), token(1), past).await, Err(ClientError::Unreachable { .. })));
    let commands = vec![Command::StateKeyRules { text: "x".into() }, Command::Lookup { key: key(1) }];
    let answers = client.submit(commands, far()).await;
    assert!(matches!(answers[0], Err(ClientError::Config { .. })), "{answers:?}");
    assert_eq!(answers[1].as_ref().unwrap().outcome, Outcome::Absent);
}

/// Many callers, and a leader that answers every third chunk badly: each insert still has exactly
/// one winner, and nobody is told otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_under_load_lose_and_double_nothing() {
    let node = Node::start().await;
    let client = Client::connect(config(&[&node])).await.unwrap();
    let faults = [Step::Drop { applied: true }, Step::Unknown { applied: false }, Step::Overloaded, Step::Unhealthy];
    let mut faults = faults.into_iter().cycle();
    for _ in 0..20 {
        let (hold_a, hold_b) = (Hold::new(), Hold::new());
        hold_a.release();
        hold_b.release();
        node.script([Step::Hold(hold_a), Step::Hold(hold_b), faults.next().unwrap()]);
    }
    let calls: Vec<_> = (0..600_u64)
        .map(|i| {
            let client = client.clone();
            // Three attempts for each id.
            tokio::spawn(async move { (i / 3, client.insert(key(i / 3), token(i), far()).await.unwrap().outcome) })
        })
        .collect();
    let mut winners = HashSet::new();
    let mut duplicates = 0;
    for call in calls {
        match call.await.unwrap() {
            (id, Outcome::Inserted) => assert!(winners.insert(id), "id {id} was won twice"),
            (_, Outcome::Duplicate { .. }) => duplicates += 1,
            (id, other) => panic!("id {id}: {other:?}"),
        }
    }
    assert_eq!((winners.len(), duplicates), (200, 400));
}
