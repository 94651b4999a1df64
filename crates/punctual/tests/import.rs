//! `punctual import` end to end: what other systems run becomes jobs, and what cannot is told.

use crate::support::asked::{Asked, text};

const CRONTAB: &str = "MAILTO=ops@example.com
*/5 * * * * /usr/local/bin/poll.sh
@reboot /usr/local/bin/warm-up
";

#[test]
fn a_crontab_becomes_documents_that_apply_takes() {
    let asked = Asked::start();
    let path = asked.file("crontab", CRONTAB);
    let output = asked.run(&["import", "crontab", &path, "--tz", "Europe/Paris", "--queue", "shell"]);
    let (documents, report) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "one line is left out: {report}");
    assert!(report.contains("crontab:3: left out: ") && report.contains("@reboot"), "{report}");
    assert!(
        report.contains("crontab:1: different: MAILTO") && report.contains("1 could not be mapped"),
        "{report}"
    );
    let applied = asked.fed(&["apply", "-f", "-"], &documents);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    let job = asked.json(&["job", "get", "key:poll.sh"]);
    assert_eq!(job["schedule"]["timezone"], "Europe/Paris");
    assert_eq!((&job["target"]["worker"]["handler"], &job["queue"]), (&"poll.sh".into(), &"shell".into()));
    assert_eq!(job["payload"]["command"], "/usr/local/bin/poll.sh");
    assert_eq!(job["retry"]["max_attempts"], 1);
}

#[test]
fn manifests_of_kubernetes_are_applied_at_once_and_again_without_a_change() {
    let asked = Asked::start();
    let manifest = "apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: billing}
spec:
  schedule: '30 2 * * *'
  timeZone: Europe/Paris
  suspend: yes
  concurrencyPolicy: Forbid
  jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: busybox}]}}}}
";
    asked.file("manifests/a.yaml", manifest);
    let arguments = ["import", "cronjobs", "manifests", "--apply", "--key-prefix", "k8s/"];
    let dry = asked.says(&[&arguments[..], &["--dry-run"]].concat());
    assert!(dry.contains("+ job k8s/billing/nightly"), "{dry}");
    asked.says(&arguments);
    let job = asked.json(&["job", "get", "key:k8s/billing/nightly"]);
    assert_eq!((&job["state"], &job["overlap"]["policy"]), (&"paused".into(), &"skip".into()), "{job}");
    assert!(asked.says(&arguments).starts_with("nothing to change"), "it is there already");
}

#[test]
fn schedules_of_eventbridge_become_a_file() {
    let asked = Asked::start();
    let schedule = r#"{"Name": "pay", "ScheduleExpression": "cron(0 18 ? * 2-6 *)", "ScheduleExpressionTimezone": "America/New_York",
        "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15}, "State": "ENABLED",
        "Target": {"Arn": "arn:aws:lambda:eu-west-1:1:function:pay", "Input": "{\"n\": 1}"}}"#;
    asked.file("schedule.json", schedule);
    let said = asked.says(&["import", "eventbridge", "schedule.json", "--to", "jobs.yaml"]);
    assert_eq!(said, "1 documents written to jobs.yaml\n");
    asked.says(&["apply", "-f", "jobs.yaml"]);
    let job = asked.json(&["job", "get", "key:pay"]);
    assert_eq!(job["schedule"]["cron"], "0 18 * * 1-5");
    assert_eq!(job["schedule"]["spread"], "PT15M");
    assert_eq!(job["payload"]["input"]["n"], 1);
}
