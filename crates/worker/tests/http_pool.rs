//! Connections that are kept, limited, found stale and given up.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    LONG, Receiver, SHORT, call, client, options, read_request, reset, target, until_closed,
};
use punctual_worker::targets::http::{Cause, Client, Headers, Options, Phase};
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_serves_many_calls() {
    let receiver = Receiver::answering(OK).await;
    let (client, target, headers) = (client(), target(&receiver.url()), Headers::default());
    for n in 0..100 {
        let answer = client.clone().send(&call(&target, &headers)).await;
        assert_eq!(answer.reused, n > 0);
        assert_eq!(answer.remote, Some(receiver.address));
        assert_eq!(answer.result.unwrap().body, "ok");
        assert_eq!(answer.timings.of(Phase::Connect) == Duration::ZERO, n > 0);
    }
    assert_eq!(receiver.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_from_many_tasks_share_few_connections() {
    let receiver = Receiver::answering(OK).await;
    let client = Client::new(Options { per_host_max: 8, ..options() }).unwrap();
    let target = Arc::new(target(&receiver.url()));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (client, target) = (client.clone(), Arc::clone(&target));
            tokio::spawn(async move {
                for _ in 0..50 {
                    let answer = client.send(&call(&target, &Headers::default())).await;
                    assert_eq!(answer.result.unwrap().body, "ok");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(receiver.accepted() <= 8, "{} connections", receiver.accepted());
}

#[tokio::test]
async fn calls_beyond_the_limit_wait_for_a_place() {
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let mut receiver = Receiver::start(move |_, mut socket, tell| {
        let gate = Arc::clone(&opened);
        async move {
            while read_request(&mut socket).await.is_some() {
                tell.send("asked".to_owned()).unwrap();
                gate.acquire().await.unwrap().forget();
                socket.write_all(OK).await.unwrap();
            }
        }
    })
    .await;
    let client = Client::new(Options { per_host_max: 3, ..options() }).unwrap();
    let url = receiver.url();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let (client, target) = (client.clone(), target(&url));
            tokio::spawn(async move { client.send(&call(&target, &Headers::default())).await })
        })
        .collect();
    for _ in 0..3 {
        receiver.event().await;
    }
    // Three are being served. A further call finds no place, sends nothing and says so.
    let (here, headers) = (target(&url), Headers::default());
    let mut late = call(&here, &headers);
    late.timeout = SHORT;
    let failure = client.send(&late).await.result.unwrap_err();
    assert!(matches!(failure.cause, Cause::TimedOut { phase: Phase::Queued, .. }), "{failure}");
    assert!(!failure.is_effect_possible());
    assert_eq!(receiver.accepted(), 3);
    assert!(receiver.events.try_recv().is_err(), "a fourth request came through");

    gate.add_permits(10);
    for call in calls {
        assert!(call.await.unwrap().result.is_ok());
    }
    assert_eq!(receiver.accepted(), 3);
}

#[tokio::test]
async fn a_connection_closed_while_it_rested_is_replaced_and_nothing_is_sent_twice() {
    for with_reset in [false, true] {
        let rests = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&rests);
        let mut receiver = Receiver::start(move |_, mut socket, tell| {
            let gate = Arc::clone(&gate);
            async move {
                read_request(&mut socket).await.unwrap();
                socket.write_all(OK).await.unwrap();
                gate.acquire().await.unwrap().forget();
                if with_reset {
                    reset(socket);
                } else {
                    drop(socket);
                }
                tell.send("closed".to_owned()).unwrap();
            }
        })
        .await;
        let (client, target, headers) = (client(), target(&receiver.url()), Headers::default());
        for n in 1..=5 {
            let answer = client.send(&call(&target, &headers)).await;
            assert_eq!(answer.result.unwrap().body, "ok", "call {n}, reset: {with_reset}");
            assert!(!answer.reused);
            rests.add_permits(1);
            assert_eq!(receiver.event().await, "closed");
        }
        assert_eq!(receiver.accepted(), 5, "one request on each");
    }
}

#[tokio::test]
async fn a_connection_closed_after_the_request_is_not_tried_again() {
    let mut receiver = Receiver::start(|_, mut socket, tell| async move {
        read_request(&mut socket).await.unwrap();
        socket.write_all(OK).await.unwrap();
        // The second request arrives, and has whatever effect it has; no answer comes.
        if let Some(second) = read_request(&mut socket).await {
            tell.send(second).unwrap();
        }
    })
    .await;
    let (client, target, headers) = (client(), target(&receiver.url()), Headers::default());
    assert!(client.send(&call(&target, &headers)).await.result.is_ok());
    let answer = client.send(&call(&target, &headers)).await;
    assert!(answer.reused);
    let failure = answer.result.unwrap_err();
    assert!(matches!(failure.cause, Cause::Closed { .. }), "{failure}");
    assert!(failure.is_effect_possible());
    assert!(receiver.event().await.starts_with("POST /hook"));
    assert_eq!(receiver.accepted(), 1, "no second connection was opened for it");
}

#[tokio::test]
async fn bytes_that_nobody_asked_for_end_a_resting_connection() {
    let rests = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&rests);
    let mut receiver = Receiver::start(move |number, mut socket, tell| {
        let gate = Arc::clone(&gate);
        async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(OK).await.unwrap();
            if number == 0 {
                gate.acquire().await.unwrap().forget();
                // An answer to a question that comes later: it must not be taken for one.
                socket.write_all(b"HTTP/1.1 500 Smuggled\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                tell.send("smuggled".to_owned()).unwrap();
            }
            until_closed(&mut socket).await;
        }
    })
    .await;
    let (client, target, headers) = (client(), target(&receiver.url()), Headers::default());
    assert!(client.send(&call(&target, &headers)).await.result.is_ok());
    rests.add_permits(1);
    assert_eq!(receiver.event().await, "smuggled");
    let answer = client.send(&call(&target, &headers)).await;
    assert_eq!(answer.result.unwrap().status, 200);
    assert_eq!(receiver.accepted(), 2);
}

#[tokio::test]
async fn a_receiver_that_says_close_is_not_reused() {
    let text = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::answering(text.as_slice()).await;
    let (client, target, headers) = (client(), target(&receiver.url()), Headers::default());
    for _ in 0..3 {
        assert!(!client.send(&call(&target, &headers)).await.reused);
    }
    assert_eq!(receiver.accepted(), 3);
}

#[tokio::test]
async fn a_connection_that_rested_too_long_is_not_used() {
    let mut receiver = Receiver::answering(OK).await;
    let client = Client::new(Options { rest_max: Duration::ZERO, ..options() }).unwrap();
    let (target, headers) = (target(&receiver.url()), Headers::default());
    for _ in 0..3 {
        assert!(!client.send(&call(&target, &headers)).await.reused);
    }
    assert_eq!(receiver.accepted(), 3);
    // The last one is nobody's next; the sweep closes it.
    let mut closed = 0;
    while closed < 3 {
        closed += usize::from(receiver.event().await == "closed");
    }
}

#[tokio::test]
async fn nothing_rests_beyond_the_limit_of_all_hosts() {
    let receivers = [Receiver::answering(OK).await, Receiver::answering(OK).await];
    let client = Client::new(Options { resting_max: 1, ..options() }).unwrap();
    let headers = Headers::default();
    let targets = receivers.each_ref().map(|receiver| target(&receiver.url()));
    for (n, expected) in [(0, false), (1, false), (0, true), (1, false)] {
        assert_eq!(client.send(&call(&targets[n], &headers)).await.reused, expected);
    }
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    // Before the response, and in its body.
    for start in ["", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345"] {
        let mut receiver = Receiver::start(move |_, mut socket, tell| async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(start.as_bytes()).await.unwrap();
            tell.send("asked".to_owned()).unwrap();
            until_closed(&mut socket).await;
            tell.send("closed".to_owned()).unwrap();
        })
        .await;
        let client = client();
        let (target, headers) = (target(&receiver.url()), Headers::default());
        let call = call(&target, &headers);
        tokio::select! {
            _ = client.send(&call) => panic!("it cannot end"),
            event = receiver.event() => assert_eq!(event, "asked"),
        }
        assert_eq!(receiver.event().await, "closed");
    }
}

#[tokio::test]
async fn a_dropped_call_gives_its_place_back() {
    let mut receiver = Receiver::start(|number, mut socket, tell| async move {
        read_request(&mut socket).await.unwrap();
        tell.send("asked".to_owned()).unwrap();
        if number > 0 {
            socket.write_all(OK).await.unwrap();
        }
        until_closed(&mut socket).await;
    })
    .await;
    let client = Client::new(Options { per_host_max: 1, ..options() }).unwrap();
    let (target, headers) = (target(&receiver.url()), Headers::default());
    let mut first = call(&target, &headers);
    first.timeout = LONG;
    tokio::select! {
        _ = client.send(&first) => panic!("it cannot end"),
        _ = receiver.event() => {}
    }
    assert!(client.send(&first).await.result.is_ok());
}

#[tokio::test]
async fn a_connection_that_the_receiver_ended_is_let_go_without_another_call() {
    let mut receiver = Receiver::start(|_, mut socket, tell| async move {
        read_request(&mut socket).await.unwrap();
        socket.write_all(OK).await.unwrap();
        socket.shutdown().await.unwrap();
        until_closed(&mut socket).await;
        tell.send("let go".to_owned()).unwrap();
    })
    .await;
    let (client, target, headers) = (client(), target(&receiver.url()), Headers::default());
    assert!(client.send(&call(&target, &headers)).await.result.is_ok());
    assert_eq!(receiver.event().await, "let go");
}

/// The receiver ends each connection after a few requests without saying so: the moment in which
/// clients send twice, or tell a caller that nothing happened when it did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_comes_twice_and_no_effect_is_denied_while_connections_end() {
    const TASKS: usize = 8;
    const CALLS: usize = 300;
    let mut receiver = Receiver::start(|number, mut socket, tell| async move {
        for _ in 0..1 + number % 4 {
            let Some(request) = read_request(&mut socket).await else { return };
            let id = request.lines().find_map(|line| line.strip_prefix("webhook-id: ")).unwrap();
            tell.send(id.to_owned()).unwrap();
            if socket.write_all(OK).await.is_err() {
                return;
            }
        }
        // From at once to about when the next request comes.
        for _ in 0..number % 16 {
            tokio::task::yield_now().await;
        }
        if number % 2 == 0 {
            reset(socket);
        }
    })
    .await;
    // Without the question before reuse, so that the races are as wide as they can be.
    let client = Client::new(Options { probe_after: LONG, ..options() }).unwrap();
    let url = receiver.url();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (client, target) = (client.clone(), target(&url));
            tokio::spawn(async move {
                let mut calls = Vec::new();
                for n in 0..CALLS {
                    let (headers, id) = (Headers::default(), format!("{task}-{n}"));
                    let mut call = call(&target, &headers);
                    call.webhook_id = &id;
                    let result = client.send(&call).await.result;
                    calls.push((id, result.map(|_| ()).map_err(|failure| failure.is_effect_possible())));
                }
                calls
            })
        })
        .collect();
    let mut calls = Vec::new();
    for task in tasks {
        calls.extend(task.await.unwrap());
    }
    let mut seen = std::collections::HashSet::new();
    while let Ok(id) = receiver.events.try_recv() {
        assert!(seen.insert(id.clone()), "{id} came twice");
    }
    for (id, result) in &calls {
        match result {
            Ok(()) => assert!(seen.contains(id), "{id} succeeded unseen"),
            Err(true) => {}
            Err(false) => assert!(!seen.contains(id), "{id} was seen, but its effect denied"),
        }
    }
    let succeeded = calls.iter().filter(|(_, result)| result.is_ok()).count();
    let unclear = calls.iter().filter(|(_, result)| *result == Err(true)).count();
    assert!(succeeded > TASKS * CALLS / 2, "{succeeded} succeeded");
    println!("{succeeded} succeeded, {unclear} unclear, {} connections", receiver.accepted());
}

#[tokio::test]
async fn a_rested_connection_is_asked_before_the_runtime_hears_of_its_end() {
    use std::io::{Read, Write};
    use std::sync::mpsc;
    // The receiver is a thread, and the test blocks instead of waiting: no event of the socket can
    // reach the runtime between the receiver's close and the second call.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (close, asked_to_close) = mpsc::channel::<()>();
    let (tell, closed) = mpsc::channel::<()>();
    let receiver = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            requests.push(socket.read(&mut buffer).unwrap() > 0);
            socket.write_all(OK).unwrap();
            asked_to_close.recv().unwrap();
            drop(socket);
            tell.send(()).unwrap();
        }
        requests
    });
    let (client, target, headers) = (client(), target(&url), Headers::default());
    for _ in 0..2 {
        let answer = client.send(&call(&target, &headers)).await;
        assert_eq!(answer.result.unwrap().body, "ok");
        assert!(!answer.reused);
        close.send(()).unwrap();
        closed.recv().unwrap();
    }
    assert_eq!(receiver.join().unwrap(), [true, true]);
}
