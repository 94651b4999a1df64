//! Secrets with a moved clock: set on one node and opened on another, while the store or the keys are away, through lost answers, and sealed
//! anew beside changes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::SignedDuration;
use punctual_domain::TenantId;
use punctual_domain::document::Kind;
use punctual_domain::job::{Http, Method, Target};
use punctual_domain::secret::{Unusable, Value, Wrong};
use punctual_engine::keys::BELIEVED;
use punctual_engine::secrets::{KeySource, NewSecret};
use punctual_engine::{Engine, Error, ManualClock};
use punctual_store::{Memory, PageRequest, Store};

use crate::support::between::Between;
use crate::support::world::{TENANT, at, engine, spec};

/// Where the keys are, and how often somebody looked.
#[derive(Debug, Default)]
struct Keys {
    text: Mutex<Option<String>>,
    reads: AtomicUsize,
}

impl Keys {
    fn set(&self, keys: &[u8]) {
        let line = |byte: &u8| format!("{byte:02x}").repeat(32);
        *self.text.lock().unwrap() = Some(keys.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
}

#[async_trait]
impl KeySource for Keys {
    async fn read(&self) -> Result<String, String> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.text.lock().unwrap().clone().ok_or_else(|| "the file is away".into())
    }
}

struct World {
    store: Arc<Between>,
    clock: Arc<ManualClock>,
    keys: Arc<Keys>,
}

impl World {
    fn new() -> Self {
        let keys = Arc::new(Keys::default());
        keys.set(&[1]);
        let clock = Arc::new(ManualClock::new(at("12:00:00")));
        World { store: Arc::new(Between::new(Arc::new(Memory::shared(16)))), clock, keys }
    }

    fn node(&self, number: u64) -> Engine {
        let engine = engine(self.store.clone(), self.clock.clone(), number);
        engine.set_key_source(self.keys.clone());
        engine
    }
}

async fn set(engine: &Engine, name: &str, value: &str) -> Result<bool, Error> {
    let value = Value::new(value).unwrap();
    let new = NewSecret { name: name.into(), value, set_by: "test".into(), expected: None };
    engine.put_secret(TENANT, new).await.map(|(_, is_new)| is_new)
}

async fn open(engine: &Engine, name: &str) -> Result<String, Unusable> {
    let values = engine.open_secrets(TENANT, &BTreeSet::from([name.to_string()])).await?;
    Ok(values.get(name).unwrap().reveal().to_string())
}

fn is_unreadable(opened: &Result<String, Unusable>) -> bool {
    matches!(opened, Err(Unusable::Unreadable { .. }))
}

#[tokio::test]
async fn a_secret_counts_at_once_where_it_is_set_and_within_a_second_elsewhere() {
    let world = World::new();
    let (one, two) = (world.node(1), world.node(2));
    assert_eq!(set(&one, "token", "first").await, Ok(true));
    assert_eq!(
        (open(&one, "token").await, open(&two, "token").await),
        (Ok("first".into()), Ok("first".into()))
    );
    assert_eq!(set(&one, "token", "second").await, Ok(false));
    assert_eq!(open(&one, "token").await, Ok("second".into()));
    world.clock.advance(SignedDuration::from_secs(1));
    assert_eq!(open(&two, "token").await, Ok("second".into()));
    two.delete_secret(TENANT, "token", None).await.unwrap();
    world.clock.advance(SignedDuration::from_secs(1));
    assert_eq!(open(&one, "token").await, Err(Unusable::NotFound("token".into())));
    assert_eq!(set(&two, "token", "third").await, Ok(true));
    assert_eq!(open(&one, "token").await, Ok("third".into()), "what was not there is looked for at once");
}

#[tokio::test]
async fn a_secret_of_one_tenant_is_not_there_for_another_and_does_not_open_if_it_is_moved() {
    let world = World::new();
    let one = world.node(1);
    set(&one, "token", "s3cret").await.unwrap();
    let names = BTreeSet::from(["token".to_string()]);
    let other = TenantId(77);
    assert_eq!(one.open_secrets(other, &names).await, Err(Unusable::NotFound("token".into())));
    let mut stolen = world.store.document(Kind::Secret, TENANT, "token").await.unwrap().unwrap();
    assert!(!stolen.body.contains("s3cret"));
    stolen.tenant = other;
    let change = punctual_store::DocumentChange {
        kind: Kind::Secret,
        tenant: other,
        name: "token".into(),
        expect: punctual_store::Expected::Any,
        body: Some(stolen.body),
    };
    world.store.put_documents(vec![change], at("12:00:00")).await.unwrap().remove(0).unwrap();
    assert!(matches!(one.open_secrets(other, &names).await, Err(Unusable::Unreadable { .. })));
}

#[tokio::test]
async fn while_the_store_is_away_what_was_read_is_used_for_a_while() {
    let world = World::new();
    let one = world.node(1);
    set(&one, "token", "s3cret").await.unwrap();
    assert_eq!(open(&one, "token").await, Ok("s3cret".into()));
    world.store.is_down.store(true, Ordering::SeqCst);
    world.clock.advance(BELIEVED - SignedDuration::from_secs(5));
    assert_eq!(open(&one, "token").await, Ok("s3cret".into()));
    assert!(is_unreadable(&open(&one, "other").await), "nobody knows whether it is there");
    world.clock.advance(SignedDuration::from_secs(10));
    assert!(is_unreadable(&open(&one, "token").await));
}

#[tokio::test]
async fn without_a_master_key_nothing_is_set_and_nothing_is_opened() {
    let world = World::new();
    set(&world.node(1), "token", "s3cret").await.unwrap();
    let keyless = engine(world.store.clone(), world.clock.clone(), 2);
    assert_eq!(set(&keyless, "other", "x").await, Err(Error::NoSecretsKey));
    assert!(is_unreadable(&open(&keyless, "token").await));
    assert_eq!(keyless.unreadable_secrets().await, Ok(1));
    assert_eq!(world.node(3).unreadable_secrets().await, Ok(0));
    *world.keys.text.lock().unwrap() = None;
    let late = world.node(4);
    assert_eq!(set(&late, "other", "x").await, Err(Error::SecretsKeyUnread("the file is away".into())));
    world.keys.set(&[1]);
    assert_eq!(open(&late, "token").await, Ok("s3cret".into()));
    *world.keys.text.lock().unwrap() = None;
    world.clock.advance(SignedDuration::from_hours(1));
    assert_eq!(open(&late, "token").await, Ok("s3cret".into()), "a key that was read stays");
}

#[tokio::test]
async fn a_key_that_is_missing_is_looked_for_now_and_then_and_not_at_every_call() {
    let world = World::new();
    let one = world.node(1);
    set(&one, "token", "s3cret").await.unwrap();
    world.keys.set(&[2]);
    let two = world.node(2);
    for _ in 0..100 {
        assert!(is_unreadable(&open(&two, "token").await));
    }
    assert_eq!(world.keys.reads.load(Ordering::SeqCst), 2, "one for setting it, one for opening it");
    world.keys.set(&[2, 1]);
    world.clock.advance(SignedDuration::from_secs(5));
    assert_eq!(open(&two, "token").await, Ok("s3cret".into()));
}

#[tokio::test]
async fn a_rotation_seals_everything_anew_and_both_keys_open_meanwhile() {
    let world = World::new();
    let (one, two) = (world.node(1), world.node(2));
    for n in 0..250 {
        set(&one, &format!("s{n}"), &format!("value {n}")).await.unwrap();
    }
    assert_eq!(open(&two, "s0").await, Ok("value 0".into()));
    world.keys.set(&[2, 1]);
    set(&one, "new", "newest").await.unwrap();
    assert_eq!(open(&two, "new").await, Ok("newest".into()), "the other node reads the keys again");
    let rotated = two.rotate_secrets_key().await.unwrap();
    assert_eq!((rotated.resealed, rotated.already, rotated.unreadable), (250, 1, 0));
    let again = one.rotate_secrets_key().await.unwrap();
    assert_eq!((again.resealed, again.already, again.unreadable), (0, 251, 0));
    world.keys.set(&[2]);
    let three = world.node(3);
    for n in 0..250 {
        assert_eq!(open(&three, &format!("s{n}")).await, Ok(format!("value {n}")));
    }
    world.keys.set(&[3]);
    let lost = three.rotate_secrets_key().await.unwrap();
    assert_eq!((lost.resealed, lost.unreadable, lost.examples.len()), (0, 251, 20));
    assert_eq!(open(&two, "s7").await, Ok("value 7".into()), "they are as they were");
}

#[tokio::test]
async fn a_secret_whose_answer_was_lost_is_set_all_the_same() {
    let world = World::new();
    let one = world.node(1);
    set(&one, "token", "first").await.unwrap();
    assert_eq!(open(&one, "token").await, Ok("first".into()));
    world.store.loses_documents.store(true, Ordering::SeqCst);
    assert!(set(&one, "token", "second").await.is_err());
    world.store.loses_documents.store(false, Ordering::SeqCst);
    assert_eq!(open(&one, "token").await, Ok("second".into()));
}

#[tokio::test]
async fn names_and_versions_are_checked() {
    let world = World::new();
    let one = world.node(1);
    assert_eq!(set(&one, "no name", "x").await, Err(Error::SecretWrong(Wrong::Name("no name".into()))));
    set(&one, "token", "x").await.unwrap();
    let stale = one.delete_secret(TENANT, "token", Some(7)).await;
    assert_eq!(stale, Err(Error::SecretChanged { expected: 7, current: 1 }));
    assert_eq!(one.delete_secret(TENANT, "none", None).await, Err(Error::SecretNotFound("none".into())));
    let page = one.secrets(TENANT, PageRequest::first(10)).await.unwrap();
    assert_eq!(
        page.items.iter().map(|one| (one.name.as_str(), one.version)).collect::<Vec<_>>(),
        [("token", 1)]
    );
}

#[tokio::test]
async fn a_job_is_told_which_of_its_secrets_are_not_there() {
    let world = World::new();
    let one = world.node(1);
    set(&one, "there", "x").await.unwrap();
    let mut job = spec("* * * * *");
    job.payload = Some(r#"{"a":"{{ secret.there }} {{ secret.gone }}"}"#.into());
    let told = one.secret_warnings(TENANT, &job).await.unwrap();
    assert!(told.len() == 1 && told[0].contains("`http` targets alone"), "{told:?}");
    job.target = Target::Http(Http {
        url: "http://a.test/{{ secret.path }}".into(),
        method: Method::Post,
        headers: vec![("x".into(), "{{ secret.there }}".into())],
        tls: None,
    });
    let told = one.secret_warnings(TENANT, &job).await.unwrap();
    assert!(told.len() == 2 && told[0].contains("`gone`") && told[1].contains("`path`"), "{told:?}");
}
