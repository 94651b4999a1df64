//! Keys with a moved clock: made, revoked and rotated on one node and asked for on another, while the store is away, through lost
//! answers, and until they are forgotten.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::SignedDuration;
use punctual_domain::TenantId;
use punctual_domain::document::Kind;
use punctual_domain::key::{Beyond, Key, KeyId, Refused, Right, Role, Seal, Shown};
use punctual_engine::keys::{BELIEVED, Denied, NewKey, OF_FILE, Scope};
use punctual_engine::{Clock, Engine, Error, ManualClock, Node, Options};
use punctual_store::{Memory, PageRequest, Store};

use crate::support::between::Between;
use crate::support::world::{at, engine};

/// A store that fails when told to, and a clock.
struct World {
    store: Arc<Between>,
    clock: Arc<ManualClock>,
}

struct Member {
    engine: Arc<Engine>,
    node: Node,
}

impl World {
    fn new(store: Memory) -> Self {
        let clock = Arc::new(ManualClock::new(at("12:00:00")));
        World { store: Arc::new(Between::new(Arc::new(store))), clock }
    }

    /// Of several nodes.
    fn shared() -> Self {
        World::new(Memory::shared(16))
    }

    async fn join(&self, number: u64) -> Member {
        let engine = Arc::new(engine(self.store.clone(), self.clock.clone(), number));
        engine.set_seal(Seal::new([5; 32]));
        let node = Node::start(engine.clone(), engine.new_worker_id(), Options::default()).await.unwrap();
        settle().await;
        Member { engine, node }
    }

    async fn pass(&self, time: SignedDuration) {
        self.clock.advance(time);
        settle().await;
    }

    async fn written(&self, kind: Kind) -> usize {
        self.store.documents(kind, None, None, 1_000).await.unwrap().len()
    }
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn new(right: Right) -> NewKey {
    NewKey { name: "ci".into(), right, created_by: "test".into() }
}

fn right(role: Role, tenant: Option<TenantId>) -> Right {
    Right { role, tenant, expires_at: None }
}

async fn create(member: &Member, right: Right) -> (Key, Shown) {
    member.engine.create_key(new(right), &Right::ALL).await.unwrap()
}

/// What a key gives: its role and tenant.
fn shown(member: &Member, key: &Shown) -> Result<(Role, Option<String>), Denied> {
    let admitted = member.engine.admit_key(&key.reveal())?;
    Ok((admitted.right.role, admitted.tenant.map(|name| name.to_string())))
}

#[tokio::test]
async fn a_key_counts_at_once_where_it_is_made_and_within_a_second_elsewhere() {
    let world = World::shared();
    let (one, two) = (world.join(1).await, world.join(2).await);
    assert_eq!((one.engine.are_keys_needed(), two.engine.are_keys_needed()), (Ok(false), Ok(false)));
    let (key, secret) = create(&one, right(Role::Operator, Some(TenantId::DEFAULT))).await;
    let good = Ok((Role::Operator, Some("default".to_string())));
    assert_eq!((one.engine.are_keys_needed(), shown(&one, &secret)), (Ok(true), good.clone()));
    world.pass(seconds(1)).await;
    assert_eq!((two.engine.are_keys_needed(), shown(&two, &secret)), (Ok(true), good));

    // A stream that was opened with it ends with it.
    let pass = two.engine.admit_key(&secret.reveal()).unwrap().pass;
    let stream = tokio::spawn({
        let engine = two.engine.clone();
        async move { engine.denied(Some(pass)).await }
    });
    settle().await;
    assert!(!stream.is_finished());
    one.engine.revoke_key(None, &key.id.to_string()).await.unwrap();
    let revoked = Denied::Refused(Refused::Revoked(world.clock.now()));
    assert_eq!(shown(&one, &secret), Err(revoked));
    world.pass(seconds(1)).await;
    assert_eq!((shown(&two, &secret), stream.await.unwrap()), (Err(revoked), revoked));
    let again = one.engine.revoke_key(None, &key.id.to_string()).await.unwrap();
    assert_eq!(again.revoked_at, Some(at("12:00:01")), "twice is once");
    assert_eq!(two.engine.are_keys_needed(), Ok(true), "the door stays locked");
}

#[tokio::test]
async fn whoever_came_without_a_key_goes_when_the_first_is_made() {
    let world = World::shared();
    let (one, two) = (world.join(1).await, world.join(2).await);
    let stream = tokio::spawn({
        let engine = two.engine.clone();
        async move { engine.denied(None).await }
    });
    world.pass(seconds(5)).await;
    assert!(!stream.is_finished());
    create(&one, Right::ALL).await;
    world.pass(seconds(1)).await;
    assert_eq!(stream.await.unwrap(), Denied::Needed);
}

#[tokio::test]
async fn a_rotated_key_is_good_with_both_secrets_for_the_overlap_on_every_node() {
    let world = World::shared();
    let (one, two) = (world.join(1).await, world.join(2).await);
    let (key, old) = create(&one, Right::ALL).await;
    let (rotated, fresh) = one.engine.rotate_key(None, &key.id.to_string(), seconds(60)).await.unwrap();
    assert_eq!((fresh.id, rotated.old_until(at("12:00:00"))), (key.id, Some(at("12:01:00"))));
    let good = Ok((Role::Admin, None));
    world.pass(seconds(1)).await;
    for member in [&one, &two] {
        assert_eq!((shown(member, &old), shown(member, &fresh)), (good.clone(), good.clone()));
    }
    let pass = two.engine.admit_key(&old.reveal()).unwrap().pass;
    world.pass(seconds(59)).await;
    let over = Denied::Refused(Refused::Expired(at("12:01:00")));
    for member in [&one, &two] {
        assert_eq!((shown(member, &old), shown(member, &fresh)), (Err(over), good.clone()));
    }
    assert_eq!(two.engine.denied(Some(pass)).await, over);
    one.engine.revoke_key(None, &key.id.to_string()).await.unwrap();
    let refused = one.engine.rotate_key(None, &key.id.to_string(), seconds(60)).await;
    assert_eq!(refused.unwrap_err(), Error::KeyOver { state: "revoked" });
}

#[tokio::test]
async fn while_the_store_is_away_known_keys_stay_good_for_a_while_and_then_none_is() {
    let world = World::shared();
    let (one, two) = (world.join(1).await, world.join(2).await);
    let (key, secret) = create(&one, Right::ALL).await;
    world.pass(seconds(1)).await;
    world.store.is_down.store(true, Ordering::SeqCst);
    world.pass(BELIEVED - seconds(5)).await;
    assert_eq!(shown(&two, &secret), Ok((Role::Admin, None)));
    world.pass(seconds(10)).await;
    assert_eq!(shown(&two, &secret), Err(Denied::Unread));
    world.store.is_down.store(false, Ordering::SeqCst);
    // What the other node does meanwhile is found when the store is back.
    one.engine.revoke_key(None, &key.id.to_string()).await.unwrap();
    world.pass(seconds(1)).await;
    assert!(matches!(shown(&two, &secret), Err(Denied::Refused(Refused::Revoked(_)))));
}

#[tokio::test]
async fn a_key_whose_answer_was_lost_is_in_force_all_the_same() {
    let world = World::new(Memory::new(16));
    let one = world.join(1).await;
    world.store.loses_documents.store(true, Ordering::SeqCst);
    assert!(one.engine.create_key(new(Right::ALL), &Right::ALL).await.is_err());
    world.store.loses_documents.store(false, Ordering::SeqCst);
    world.pass(seconds(1)).await;
    assert_eq!((one.engine.are_keys_needed(), world.written(Kind::Key).await), (Ok(true), 1));
}

#[tokio::test]
async fn what_is_shown_must_be_the_whole_key_of_this_installation() {
    let world = World::new(Memory::new(16));
    let one = world.join(1).await;
    let (key, secret) = create(&one, Right::ALL).await;
    assert_eq!(shown(&one, &secret), Ok((Role::Admin, None)));
    let unknown = Err(Denied::Refused(Refused::Unknown));
    assert_eq!(shown(&one, &Shown::new(key.id, [0xee; 32])), unknown);
    assert_eq!(shown(&one, &Shown::new(KeyId::new(1), [0xee; 32])), unknown);
    assert!(matches!(one.engine.admit_key("pk_1_2"), Err(Denied::Malformed(_))));
    // Another installation has copied the documents and not the secret.
    let other = Arc::new(engine(world.store.clone(), world.clock.clone(), 2));
    other.set_seal(Seal::new([6; 32]));
    assert_eq!(other.admit_key(&secret.reveal()), Err(Denied::Unread), "nothing was read yet");
    other.read_keys().await.unwrap();
    assert_eq!(other.admit_key(&secret.reveal()), Err(Denied::Refused(Refused::Unknown)));
}

#[tokio::test]
async fn when_a_key_was_used_is_written_once_a_minute_and_not_by_the_request() {
    let world = World::new(Memory::new(16));
    let one = world.join(1).await;
    let (key, secret) = create(&one, Right::ALL).await;
    let id = key.id.to_string();
    assert_eq!(one.engine.key(None, &id).await.unwrap().last_used_at, None);
    let calls = world.store.calls.load(Ordering::SeqCst);
    for _ in 0..100 {
        shown(&one, &secret).unwrap();
    }
    assert_eq!(world.store.calls.load(Ordering::SeqCst), calls, "nobody asked the store");
    assert_eq!(one.engine.write_key_uses().await, Ok(1));
    world.clock.advance(seconds(30));
    shown(&one, &secret).unwrap();
    assert_eq!(one.engine.write_key_uses().await, Ok(0), "half a minute is too soon");
    assert_eq!(one.engine.key(None, &id).await.unwrap().last_used_at, Some(at("12:00:30")));
    world.clock.advance(seconds(30));
    assert_eq!(one.engine.write_key_uses().await, Ok(1));
    assert_eq!(one.engine.write_key_uses().await, Ok(0), "it was not used since");
    one.node.stop().await.unwrap();
    // Another process knows what was written.
    let two = world.join(2).await;
    assert_eq!(two.engine.key(None, &id).await.unwrap().last_used_at, Some(at("12:00:30")));
}

#[tokio::test]
async fn keys_of_a_tenant_are_seen_and_changed_by_that_tenant_alone() {
    let world = World::new(Memory::new(16));
    let one = world.join(1).await;
    let acme = world.store.put_tenant(&"acme".parse().unwrap(), world.clock.now()).await.unwrap().id;
    let (all, _) = create(&one, Right::ALL).await;
    let (ours, _) = create(&one, right(Role::Viewer, Some(TenantId::DEFAULT))).await;
    let (theirs, secret) = create(&one, right(Role::Worker, Some(acme))).await;
    assert_eq!(shown(&one, &secret), Ok((Role::Worker, Some("acme".into()))));
    let list = async |scope: Scope| -> Vec<KeyId> {
        let (mut ids, mut page) = (Vec::new(), PageRequest::first(1));
        loop {
            let found = one.engine.keys(scope, page).await.unwrap();
            ids.extend(found.items.iter().map(|listed| listed.key.id));
            match found.next {
                Some(next) => page = PageRequest { after: Some(next), limit: 1 },
                None => return ids,
            }
        }
    };
    assert_eq!(list(None).await, [all.id, ours.id, theirs.id]);
    assert_eq!(list(Some(TenantId::DEFAULT)).await, [ours.id]);
    assert_eq!(list(Some(acme)).await, [theirs.id]);
    for foreign in [all.id, ours.id] {
        let id = foreign.to_string();
        let not_found = Error::KeyNotFound(id.clone());
        assert_eq!(one.engine.key(Some(acme), &id).await.unwrap_err(), not_found);
        assert_eq!(one.engine.revoke_key(Some(acme), &id).await.unwrap_err(), not_found);
        assert_eq!(one.engine.rotate_key(Some(acme), &id, seconds(1)).await.unwrap_err(), not_found);
    }
    let by = right(Role::Admin, Some(acme));
    for (asked, refused) in
        [(Right::ALL, Beyond::Tenant), (right(Role::Viewer, Some(TenantId::DEFAULT)), Beyond::Tenant)]
    {
        assert_eq!(one.engine.create_key(new(asked), &by).await.unwrap_err(), Error::KeyBeyond(refused));
    }
    one.engine.create_key(new(by), &by).await.unwrap();
}

#[tokio::test]
async fn a_key_of_a_file_is_there_once_and_never_again_when_it_was_revoked() {
    let world = World::shared();
    let (one, two) = (world.join(1).await, world.join(2).await);
    let secret = Shown::new(KeyId::new(77), [9; 32]);
    let of_file = || NewKey { created_by: OF_FILE.into(), ..new(Right::ALL) };
    one.engine.ensure_key(&secret, of_file()).await.unwrap();
    two.engine.ensure_key(&secret, of_file()).await.unwrap();
    assert_eq!((world.written(Kind::Key).await, shown(&two, &secret)), (1, Ok((Role::Admin, None))));
    let other = Shown::new(KeyId::new(77), [8; 32]);
    let refused = two.engine.ensure_key(&other, of_file()).await;
    assert_eq!(refused.unwrap_err(), Error::KeyRefused(Refused::Unknown));
    let (weak, secret_of_weak) = create(&one, right(Role::Viewer, None)).await;
    let refused = two.engine.ensure_key(&secret_of_weak, of_file()).await;
    assert_eq!(refused.unwrap_err(), Error::KeyTooWeak { id: weak.id, role: "viewer" });
    one.engine.revoke_key(None, &secret.id.to_string()).await.unwrap();
    world.pass(SignedDuration::from_hours(24 * 400)).await;
    let refused = two.engine.ensure_key(&secret, of_file()).await;
    assert_eq!(refused.unwrap_err(), Error::KeyRefused(Refused::Revoked(at("12:00:00"))));
}

#[tokio::test]
async fn a_key_that_has_been_over_for_long_is_forgotten_and_keys_stay_in_force() {
    let world = World::new(Memory::new(16));
    let one = world.join(1).await;
    let mut short = Right::ALL;
    short.expires_at = Some(at("13:00:00"));
    let (expired, secret) = create(&one, short).await;
    let (kept, kept_secret) = create(&one, Right::ALL).await;
    shown(&one, &secret).unwrap();
    assert_eq!(one.engine.write_key_uses().await, Ok(1));
    world.clock.advance(SignedDuration::from_hours(24 * 30));
    assert_eq!(shown(&one, &secret), Err(Denied::Refused(Refused::Expired(at("13:00:00")))));
    assert_eq!(one.engine.forget_keys().await, Ok(0));
    world.clock.advance(SignedDuration::from_hours(2));
    assert_eq!(one.engine.forget_keys().await, Ok(1));
    assert_eq!((world.written(Kind::Key).await, world.written(Kind::KeyUse).await), (1, 0));
    let id = expired.id.to_string();
    assert_eq!(one.engine.key(None, &id).await.unwrap_err(), Error::KeyNotFound(id));
    assert_eq!(shown(&one, &kept_secret), Ok((Role::Admin, None)));
    one.engine.revoke_key(None, &kept.id.to_string()).await.unwrap();
    world.clock.advance(SignedDuration::from_hours(24 * 31));
    assert_eq!((one.engine.forget_keys().await, world.written(Kind::Key).await), (Ok(1), 0));
    assert_eq!(one.engine.are_keys_needed(), Ok(true), "also without any key");
    let again = engine(world.store.clone(), world.clock.clone(), 3);
    again.read_keys().await.unwrap();
    assert_eq!(again.are_keys_needed(), Ok(true), "and after a restart");
}

#[tokio::test]
async fn a_key_that_cannot_be_read_opens_nothing_and_closes_nothing_else() {
    let world = World::new(Memory::new(16));
    let one = world.join(1).await;
    let (key, secret) = create(&one, Right::ALL).await;
    let change = punctual_store::DocumentChange {
        kind: Kind::Key,
        tenant: TenantId::NOBODY,
        name: "00000000000000ff".into(),
        expect: punctual_store::Expected::Any,
        body: Some(r#"{"v":1,"name":"x","role":"owner","secrets":[],"created":0,"by":"x"}"#.into()),
        audit: None,
    };
    world.store.put_documents(vec![change], world.clock.now()).await.unwrap().remove(0).unwrap();
    one.engine.read_keys().await.unwrap();
    assert_eq!(shown(&one, &secret), Ok((Role::Admin, None)));
    assert_eq!(shown(&one, &Shown::new(KeyId::new(0xff), [1; 32])), Err(Denied::Refused(Refused::Unknown)));
    one.engine.revoke_key(None, &key.id.to_string()).await.unwrap();
}
