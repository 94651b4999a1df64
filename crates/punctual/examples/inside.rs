//! Punctual inside a program: three handlers, a job every second, one that fails and is retried, one that goes on where it stopped.
//!
//! `cargo run --release --example inside`

use std::time::Duration;

use punctual::function::{Call, Failed};
use punctual::{Punctual, Schedule, Spec, Target};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = std::env::temp_dir().join("punctual-inside");
    let punctual = Punctual::builder(&data)
        .function("tick", tick)
        .function("flaky", flaky)
        .function("pages", pages)
        .start()
        .await?;
    println!("data is in {}", data.display());
    let job = |name: &str, schedule: &str, function: &str| {
        let target = Target::Function { name: function.into() };
        Ok::<Spec, punctual::Error>(Spec::new(name, Schedule::parse(schedule)?, target))
    };
    punctual.schedule(Spec { payload: Some("{\"n\":7}".into()), ..job("hello", "@now", "tick")? }).await?;
    punctual.schedule(job("again and again", "@now", "flaky")?).await?;
    punctual.schedule(job("pages", "@now", "pages")?).await?;
    let ticking = punctual.schedule(job("ticking", "@every 1s", "tick")?).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    // Without this it would go on when the program is started again.
    punctual.engine().delete(ticking.job.tenant, ticking.job.id, None).await?;
    let stopped = punctual.stop(Duration::from_secs(5)).await?;
    println!("stopped; {} attempts were given back", stopped.released);
    Ok(())
}

async fn tick(call: Call) -> Result<Option<String>, Failed> {
    println!("{} for the slot {} with {:?}", call.job_name, call.scheduled_for, call.payload);
    Ok(None)
}

async fn flaky(call: Call) -> Result<Option<String>, Failed> {
    println!("{}: attempt {}", call.job_name, call.attempt);
    match call.attempt {
        1 => Err(Failed::new("not yet").retry_after(Duration::from_secs(1))),
        _ => Ok(Some("worked".into())),
    }
}

/// Long work: says how far it is, and where the next attempt goes on.
async fn pages(call: Call) -> Result<Option<String>, Failed> {
    let first = call.last_checkpoint()["page"].as_u64().unwrap_or(0);
    for page in first..10 {
        if call.is_cancelled() {
            return Err(Failed::new("stopped before it was done"));
        }
        if page == 5 && call.attempt == 1 {
            return Err(Failed::new("the network went away").retry_after(Duration::from_secs(1)));
        }
        call.log(format!("page {page}"));
        call.checkpoint(&serde_json::json!({ "page": page + 1 }))?;
        call.progress((page * 10) as u8, format!("page {page} of 10"));
    }
    println!("{}: attempt {} began with page {first}", call.job_name, call.attempt);
    Ok(Some("10 pages".into()))
}
