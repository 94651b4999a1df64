//! Crontabs, as Vixie's cron and cronie read them.
//!
//! Settings count for the lines under them. A command goes to a worker, since Punctual runs none itself: its payload has the command, the
//! settings, what goes to its standard input and, in a crontab of the system, the user.

use punctual_schedule::Schedule;

use super::{Draft, Given, Imported, slug};
use crate::document::files::Place;
use crate::document::{Node, Value};

/// What settings of cron itself say; the others are for the command.
#[derive(Default)]
struct Settings {
    environment: Vec<(String, String)>,
    timezone: Option<String>,
    delay: Option<u64>,
}

/// Reads a crontab.
pub(super) fn read(file: &str, text: &str, is_system: bool, given: &Given) -> Imported {
    let mut imported = Imported::default();
    let mut settings = Settings::default();
    for (index, line) in text.lines().enumerate() {
        let place = Place { file: file.into(), line: index + 1, number: index + 1 };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match setting(line) {
            Some((name, value)) => settings.set(name, value, &place, &mut imported),
            None => entry(line, is_system, &settings, place, given, &mut imported),
        }
    }
    imported.remarks.push(
        "commands are left to workers that pull: each job has a handler named like it (--handler gives all of them one), \
         and its payload has the command",
    );
    imported.remarks.push(
        "as with cron, runs may overlap, are not retried, and slots that were missed stay missed; an attempt ends after 24 hours",
    );
    if given.timezone.is_none() {
        imported.remarks.push("times are in UTC where the crontab names no zone; cron means the machine's, so give it with --tz");
    }
    imported
}

/// `NAME = value`, with quotes around it or not.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (unquoted(name.trim()), unquoted(value.trim()));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

impl Settings {
    fn set(&mut self, name: &str, value: &str, place: &Place, imported: &mut Imported) {
        match name {
            "CRON_TZ" => self.timezone = Some(value.into()).filter(|zone: &String| !zone.is_empty()),
            "RANDOM_DELAY" => match value.parse() {
                Ok(minutes) => self.delay = Some(minutes),
                Err(_) => {
                    imported.different(place, format!("RANDOM_DELAY={value} is not a number of minutes"));
                }
            },
            "MAILTO" | "MAILFROM" | "CONTENT_TYPE" | "CONTENT_TRANSFER_ENCODING" => {
                let way_out = match (name, value) {
                    ("MAILTO", "") => "nobody is told, unless an alert says so".to_string(),
                    ("MAILTO", to) => format!(
                        "to be told of failures: punctual alert put cron --on dead_letter --label source=crontab --mail {to}"
                    ),
                    _ => "mails are written by Punctual".to_string(),
                };
                imported.different(
                    place,
                    format!("{name}: output is kept with each run and not sent; {way_out}"),
                );
            }
            "START_HOURS_RANGE" | "CRON_LOG" => {
                imported.different(place, format!("{name} means nothing here"));
            }
            _ => {
                self.environment.retain(|(known, _)| known != name);
                self.environment.push((name.into(), value.into()));
            }
        }
    }
}

fn entry(
    line: &str,
    is_system: bool,
    settings: &Settings,
    place: Place,
    given: &Given,
    imported: &mut Imported,
) {
    let fields = if line.starts_with('@') { 1 } else { 5 };
    let (schedule, rest) = split_words(line, fields);
    let (user, rest) = match is_system {
        true => {
            let (user, rest) = split_words(rest, 1);
            (Some(user), rest)
        }
        false => (None, rest),
    };
    let (command, input) = command_of(rest);
    if command.is_empty() {
        let hint = if is_system { "; is it the crontab of a user? then without --system" } else { "" };
        return imported.left(place, format!("`{line}` has no command{hint}"));
    }
    if schedule.eq_ignore_ascii_case("@reboot") {
        let why =
            "@reboot runs when a machine starts, and a job belongs to no machine; let its init system run it";
        return imported.left(place, format!("`{command}`: {why}"));
    }
    let (expression, is_random) = match ours(schedule) {
        Ok(ours) => ours,
        Err(reason) => return imported.left(place, format!("`{command}`: {reason}")),
    };
    if let Err(error) = Schedule::parse(&expression) {
        return imported.left(place, format!("`{command}`: {error}"));
    }
    if is_random {
        let now = format!(
            "`{schedule}`: cron chooses a time when it reads the file; `{expression}` is always the same"
        );
        imported.different(&place, now);
    }
    let zone = settings.timezone.clone().or_else(|| given.timezone.clone()).unwrap_or_else(|| "UTC".into());
    let mut when = Node::map([("cron", expression.into()), ("timezone", zone.into())]);
    if let Some(minutes) = settings.delay.filter(|minutes| *minutes > 0) {
        when.set("spread", format!("PT{minutes}M"));
        let why = "RANDOM_DELAY is another delay each time; `spread` is always the same for a job";
        imported.different(&place, why);
    }
    let mut payload = Node::map([("command", command.as_str().into())]);
    if let Some(input) = input {
        payload.set("stdin", input);
    }
    if let Some(user) = user {
        payload.set("user", user);
    }
    if !settings.environment.is_empty() {
        let members = settings.environment.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        payload.set("env", Node::new(Value::Map(members.collect())));
    }
    let name = named(&command);
    let draft = Draft {
        key: name.clone(),
        name: command.chars().take(100).collect(),
        labels: vec![("source".into(), "crontab".into())],
        schedule: when,
        handler: name,
        payload,
        more: vec![
            ("timeout", "PT24H".into()),
            ("retry", Node::map([("max_attempts", 1.into())])),
            ("catch_up", Node::map([("policy", "none".into())])),
            // Also what is usual: a default of the tenant may say otherwise.
            ("overlap", Node::map([("policy", "allow".into())])),
        ],
    };
    imported.add(place, draft.document(given));
}

/// The first so many words, and the rest.
fn split_words(line: &str, count: usize) -> (&str, &str) {
    let mut end = 0;
    for _ in 0..count {
        let rest = &line[end..];
        let start = rest.len() - rest.trim_start().len();
        let word = rest[start..].find(char::is_whitespace).unwrap_or(rest.len() - start);
        end += start + word;
    }
    (line[..end].trim(), line[end..].trim())
}

/// The command, and what cron sends to its standard input: from the first `%` on, and each further one is a new line.
fn command_of(text: &str) -> (String, Option<String>) {
    let mut parts = vec![String::new()];
    let mut is_escaped = false;
    for c in text.chars() {
        match c {
            '%' if is_escaped => {
                if let Some(part) = parts.last_mut() {
                    part.pop();
                    part.push('%');
                }
            }
            '%' => parts.push(String::new()),
            _ => parts.last_mut().into_iter().for_each(|part| part.push(c)),
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    let command = parts.remove(0).trim().to_string();
    let mut input = parts.join("\n");
    // Cron ends the last line, unless a `%` has.
    if !input.is_empty() && !input.ends_with('\n') {
        input.push('\n');
    }
    (command, Some(input).filter(|input| !input.is_empty()))
}

/// The schedule as we write it, and whether cron would choose at random: `0~30`. A `-` before it only keeps cron from logging.
fn ours(schedule: &str) -> Result<(String, bool), String> {
    if schedule.starts_with('@') {
        return Ok((schedule.to_ascii_lowercase(), false));
    }
    let mut is_random = false;
    let mut fields = Vec::new();
    for field in schedule.trim_start_matches('-').split_whitespace() {
        if let Some(item) = field.split(',').find(|item| is_open_step(item)) {
            let why = "cron takes the first value alone, or refuses it; here the step goes on to the end of the field";
            return Err(format!(
                "`{item}` in `{schedule}`: {why}; write the range that you mean, such as `10-59/15`"
            ));
        }
        fields.push(match field.split_once('~') {
            Some(("", "")) => {
                is_random = true;
                "H".to_string()
            }
            Some((from, to)) if !from.is_empty() && !to.is_empty() => {
                is_random = true;
                format!("H({from}-{to})")
            }
            _ => field.to_string(),
        });
    }
    join_days(&mut fields);
    Ok((fields.join(" "), is_random))
}

/// `10/15`: a step from one value on, without an end.
fn is_open_step(item: &str) -> bool {
    item.split_once('/')
        .is_some_and(|(base, _)| !base.is_empty() && base != "*" && !base.contains(['-', '~']))
}

/// Makes the day fields go together as cron has them. A field that begins with `*`, also `*/2`, must match as well as the other, which
/// is a `+` before the weekdays here; any other is enough by itself, even if it names every day.
fn join_days(fields: &mut [String]) {
    let [_, _, days, _, weekdays] = fields else { return };
    let is_everything = |field: &str| field.split(',').any(|item| matches!(item, "*" | "*/1"));
    for (field, every) in [(&mut *days, "1-31"), (&mut *weekdays, "0-6")] {
        if !field.starts_with('*') && is_everything(field) {
            *field = every.into();
        }
    }
    let has_star = days.starts_with('*') || weekdays.starts_with('*');
    if has_star && !is_everything(days) && !is_everything(weekdays) {
        weekdays.insert(0, '+');
    }
}

/// What people call a command: the first word that is its own.
fn named(command: &str) -> String {
    const AROUND: [&str; 22] = [
        "sh", "bash", "dash", "zsh", "env", "nice", "ionice", "timeout", "flock", "sudo", "exec", "test",
        "[", "cd", "root", "python", "python3", "perl", "php", "ruby", "node", "chronic",
    ];
    let mut is_folder = false; // The word after `cd` says where, not what.
    let own = command.split([' ', '\t', ';', '&', '|']).find_map(|word| {
        if std::mem::replace(&mut is_folder, word == "cd") {
            return None;
        }
        let base = word.rsplit('/').next().unwrap_or(word);
        let is_own = base.starts_with(|c: char| c.is_ascii_alphabetic())
            && !word.contains('=')
            && !AROUND.contains(&base);
        is_own.then_some(base)
    });
    slug(own.unwrap_or(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_sign_is_a_new_line_unless_it_is_escaped() {
        for (text, command, input) in [
            ("mail -s hi%one%two", "mail -s hi", Some("one\ntwo\n")),
            (r"date +\%F", "date +%F", None),
            (r"echo a\%b%c", "echo a%b", Some("c\n")),
            ("x", "x", None),
            ("x%", "x", None),
            ("x%a%", "x", Some("a\n")),
            ("x%a%%", "x", Some("a\n\n")),
            ("x%%", "x", Some("\n")),
        ] {
            assert_eq!(command_of(text), (command.to_string(), input.map(String::from)), "{text}");
        }
    }

    #[test]
    fn days_go_together_as_cron_has_them() {
        for (schedule, expected) in [
            ("0 0 */2 * 1-5", "0 0 */2 * +1-5"),
            ("0 0 1-15 * */2", "0 0 1-15 * +*/2"),
            ("0 0 */2 * */3", "0 0 */2 * +*/3"),
            ("0 0 */2,5 * MON", "0 0 */2,5 * +MON"),
            ("0 0 5,*/2 * MON", "0 0 5,*/2 * MON"),
            ("0 0 1,15 * 1", "0 0 1,15 * 1"),
            ("0 0 */2 * *", "0 0 */2 * *"),
            ("0 0 */1 * 1", "0 0 */1 * 1"),
            ("0 0 *,5 * 1", "0 0 *,5 * 1"),
            ("0 0 5,* * 1", "0 0 1-31 * 1"),
            ("0 0 * * */2", "0 0 * * */2"),
            ("-0~30 ~ * * *", "H(0-30) H * * *"),
        ] {
            let (ours, _) = ours(schedule).expect(schedule);
            assert_eq!(ours, expected, "{schedule}");
            assert!(Schedule::parse(&ours).is_ok(), "{ours}");
        }
    }

    #[test]
    fn a_step_without_an_end_is_told() {
        for schedule in ["10/15 * * * *", "0 1,2/4 * * *", "0 0 * * MON/2"] {
            assert!(ours(schedule).is_err(), "{schedule}");
        }
        for schedule in ["*/15 * * * *", "10-59/15 * * * *", "@daily"] {
            assert!(ours(schedule).is_ok(), "{schedule}");
        }
    }

    #[test]
    fn a_command_is_called_by_its_own_word() {
        for (command, name) in [
            ("/usr/local/bin/backup.sh --all", "backup.sh"),
            ("cd / && run-parts --report /etc/cron.hourly", "run-parts"),
            ("FOO=1 nice -n 5 /opt/Report", "report"),
            ("test -x /usr/sbin/anacron || { cd / }", "anacron"),
            ("cd /srv && ./report.py", "report.py"),
            ("( )", "job"),
        ] {
            assert_eq!(named(command), name, "{command}");
        }
    }

    #[test]
    fn a_setting_is_told_from_a_line() {
        assert_eq!(setting("MAILTO=\"a@b\""), Some(("MAILTO", "a@b")));
        assert_eq!(setting("A = 'x y'"), Some(("A", "x y")));
        assert_eq!(setting("* * * * * A=1 x"), None);
        assert_eq!(setting("@daily A=1 x"), None);
    }
}
