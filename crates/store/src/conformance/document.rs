//! Documents: small things that people write and nodes read.

use std::sync::Arc;

use punctual_domain::Document;
use punctual_domain::document::Kind;
use punctual_domain::id::TenantId;

use super::world::{World, at_once};
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{DocumentChange, Expected};

fn change(name: &str, expect: Expected, body: Option<&str>) -> DocumentChange {
    DocumentChange {
        kind: Kind::Calendar,
        tenant: TenantId::DEFAULT,
        name: name.into(),
        expect,
        body: body.map(Into::into),
        audit: None,
    }
}

async fn put(world: &World, change: DocumentChange) -> Result<Option<Document>, Refused> {
    world.store.put_documents(vec![change], world.now).await.expect("put_documents").remove(0)
}

async fn body(world: &World, name: &str) -> Option<(u64, String)> {
    let found = world.store.document(Kind::Calendar, TenantId::DEFAULT, name).await.expect("document");
    found.map(|document| (document.version, document.body.into_string()))
}

/// A document is there when put returns, and goes when it is taken away.
pub async fn a_document_is_there_when_put_returns(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let written = put(&world, change("holidays", Expected::Any, Some("{}"))).await.expect("written");
    let written = written.expect("it is there");
    assert_eq!((written.version, written.updated_at), (1, world.now));
    let found = world.store.document(Kind::Calendar, TenantId::DEFAULT, "holidays").await.expect("document");
    assert_eq!(found, Some(written));
    for (kind, tenant, name) in [
        (Kind::Alert, TenantId::DEFAULT, "holidays"),
        (Kind::Calendar, TenantId(7), "holidays"),
        (Kind::Calendar, TenantId::DEFAULT, "holiday"),
    ] {
        assert_eq!(world.store.document(kind, tenant, name).await.expect("document"), None);
    }
    assert_eq!(put(&world, change("holidays", Expected::Any, None)).await, Ok(None));
    assert_eq!(body(&world, "holidays").await, None);
    assert_eq!(put(&world, change("holidays", Expected::Any, None)).await, Ok(None), "it was gone");
}

/// Of two who change a document at once one is told.
pub async fn a_document_is_changed_by_whoever_knows_it(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let refused = Err(Refused::DocumentChanged);
    assert_eq!(put(&world, change("a", Expected::Version(1), Some("1"))).await, refused);
    put(&world, change("a", Expected::Absent, Some("1"))).await.expect("nothing was there");
    assert_eq!(put(&world, change("a", Expected::Absent, Some("2"))).await, refused);
    put(&world, change("a", Expected::Version(1), Some("2"))).await.expect("it was known");
    assert_eq!(put(&world, change("a", Expected::Version(1), Some("3"))).await, refused);
    assert_eq!(put(&world, change("a", Expected::Version(1), None)).await, refused);
    assert_eq!(body(&world, "a").await, Some((2, "2".into())));
    // One that is refused does not spoil the others.
    let changes = vec![
        change("a", Expected::Absent, Some("4")),
        change("b", Expected::Absent, Some("5")),
        change("a", Expected::Version(2), None),
    ];
    let answers = world.store.put_documents(changes, world.now).await.expect("put_documents");
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!((body(&world, "a").await, body(&world, "b").await), (None, Some((1, "5".into()))));
}

/// Of many who write the same at once, one is the first.
pub async fn a_document_is_made_once(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let make = |number: u32| {
        let store = Arc::clone(&world.store);
        let (now, text) = (world.now, number.to_string());
        async move {
            let made = change("one", Expected::Absent, Some(&text));
            store.put_documents(vec![made], now).await.expect("put_documents").remove(0).is_ok()
        }
    };
    let made = at_once((0..8).map(make)).await;
    assert_eq!(made.iter().filter(|is_made| **is_made).count(), 1);
}

/// Lists are by tenant and name, in pages.
pub async fn documents_are_listed_in_pages(store: Arc<dyn Store>) {
    let world = World::new(store).await;
    let (one, two) = (TenantId(3), TenantId(4));
    let names = ["B", "a", "a b", "\u{e9}"]; // By their bytes, in every store.
    for (tenant, name) in [one, two].iter().flat_map(|tenant| names.map(|name| (*tenant, name))) {
        let made = DocumentChange { tenant, ..change(name, Expected::Absent, Some("{}")) };
        put(&world, made).await.expect("made");
    }
    put(&world, DocumentChange { kind: Kind::Alert, ..change("x", Expected::Any, Some("{}")) })
        .await
        .expect("made");
    for (tenant, wanted) in [(None, 8), (Some(one), 4), (Some(two), 4), (Some(TenantId(5)), 0)] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = world.store.documents(Kind::Calendar, tenant, after, 3).await.expect("documents");
            found.extend(page.iter().map(|document| (document.tenant, document.name.clone())));
            after = found.last().cloned();
            if page.len() < 3 {
                break;
            }
        }
        assert_eq!(found.len(), wanted, "{tenant:?}");
        assert!(found.is_sorted() && found.iter().all(|(whose, _)| tenant.is_none_or(|one| one == *whose)));
    }
}
