//! T-2 to T-4, TE-5, TE-11 and TE-12: the taints that a pod tolerates, and for how long.

use muster_lifecycle::taint::Taint;
use muster_lifecycle::time::Period;
use muster_lifecycle::toleration::{
    Patience, Toleration, TolerationOperator, check_update, first_untolerated, patience, tolerates,
    with_daemon_defaults, with_defaults,
};

use crate::fixture::tolerations::{toleration, tolerations};

fn taint(text: &str) -> Taint {
    text.parse().expect("a taint")
}

fn taints(text: &str) -> Vec<Taint> {
    text.split_whitespace().map(taint).collect()
}

fn shown(tolerations: &[Toleration]) -> Vec<String> {
    tolerations.iter().map(ToString::to_string).collect()
}

#[test]
fn t_2_which_taints_a_toleration_matches() {
    let cases = [
        ("k=v:NoExecute", "k=v:NoExecute", true),
        ("k=v:NoExecute", "k=w:NoExecute", false),
        ("k=v:NoExecute", "l=v:NoExecute", false),
        ("k=v:NoExecute", "k=v:NoSchedule", false),
        ("k=v", "k=v:NoSchedule", true),
        ("k=", "k:NoSchedule", true),
        ("k=", "k=v:NoSchedule", false),
        ("k:NoExecute", "k=v:NoExecute", true),
        ("k:NoExecute", "k=v:NoSchedule", false),
        ("*", "k=v:NoSchedule", true),
        ("*:NoExecute", "k=v:NoExecute", true),
        ("*:NoExecute", "k=v:NoSchedule", false),
        ("k<5", "k=4:NoSchedule", true),
        ("k<5", "k=5:NoSchedule", false),
        ("k>5", "k=6:NoSchedule", true),
        ("k>5", "k=5:NoSchedule", false),
        ("k>5", "k=10:NoSchedule", true),
        ("k<5", "k=many:NoSchedule", false),
        ("k<5", "k:NoSchedule", false),
        ("k>9223372036854775806", "k=9223372036854775807:NoSchedule", true),
        ("k>5", "k=9223372036854775808:NoSchedule", false),
    ];
    for (own, given, expected) in cases {
        assert_eq!(toleration(own).matches(&taint(given)), expected, "{own} of {given}");
        assert_eq!(tolerates(&tolerations(own), &taint(given)), expected);
    }
}

#[test]
fn t_3_an_invalid_toleration_is_refused_with_its_field() {
    let cases = [
        ("k=v:NoExecute", None),
        ("*", None),
        ("k:NoExecute@0", None),
        ("k:NoExecute@-1", None),
        ("k<5:NoSchedule", None),
        ("*=v", Some("here.operator: must be Exists when the key is empty: it then stands for every taint")),
        ("*>5", Some("here.operator: must be Exists when the key is empty: it then stands for every taint")),
        ("k>five", Some("here.value: must be a whole number when the operator is Lt or Gt")),
        ("k<", Some("here.value: must be a whole number when the operator is Lt or Gt")),
        ("k:NoSchedule@5", Some("here.effect: must be NoExecute when tolerationSeconds is set")),
        ("k@5", Some("here.effect: must be NoExecute when tolerationSeconds is set")),
    ];
    for (text, expected) in cases {
        let told = toleration(text).check("here").map_err(|invalid| invalid.to_string());
        assert_eq!(told.err().as_deref(), expected, "{text}");
    }
    let valued = Toleration { operator: TolerationOperator::Exists, ..toleration("k=v") };
    let told = valued.check("here").unwrap_err().to_string();
    assert_eq!(told, "here.value: must be empty when the operator is Exists: there is nothing to compare");
    for (text, field) in [("-k:NoExecute", "here.key"), ("k=-v-:NoExecute", "here.value")] {
        assert_eq!(toleration(text).check("here").unwrap_err().field, field);
    }
}

#[test]
fn t_4_tolerations_may_be_added_or_given_other_seconds_but_not_removed() {
    let cases = [
        ("k:NoExecute@5", "k:NoExecute@5", true),
        ("k:NoExecute@5", "k:NoExecute@500", true),
        ("k:NoExecute@5", "k:NoExecute", true),
        ("k:NoExecute", "l k:NoExecute@1", true),
        ("k l", "l k", true),
        ("", "k", true),
        ("k", "", false),
        ("k:NoExecute", "k", false),
        ("k=v", "k=w", false),
        ("k=v", "k", false),
        ("k<5", "k<6", false),
    ];
    for (before, after, allowed) in cases {
        let checked = check_update(&tolerations(before), &tolerations(after), "spec.tolerations");
        assert_eq!(checked.is_ok(), allowed, "{before} to {after}: {checked:?}");
    }
    let told = check_update(&tolerations("a b:NoExecute@7"), &tolerations("a"), "spec.tolerations").unwrap_err();
    let rule = "spec.tolerations: \"b:NoExecute for 7s\" cannot be removed: of a pod that exists tolerations can only be added";
    assert_eq!(told.to_string(), rule);
}

#[test]
fn te_5_how_long_a_taint_is_tolerated() {
    let seconds = |seconds| Patience::For(Period::from_secs(seconds));
    let cases = [
        ("", Patience::None),
        ("other:NoExecute", Patience::None),
        ("k:NoExecute@60", seconds(60)),
        ("k:NoExecute@0", seconds(0)),
        ("k:NoExecute@-1", seconds(0)),
        ("k:NoExecute", Patience::Endless),
    ];
    for (own, expected) in cases {
        assert_eq!(patience(&tolerations(own), &taint("k=v:NoExecute")), expected, "{own}");
    }
}

#[test]
fn te_5_better_than_upstream_the_best_match_counts_and_not_the_first() {
    let cases = [
        ("k:NoExecute@60 *:NoExecute", Patience::Endless),
        ("*:NoExecute k:NoExecute@60", Patience::Endless),
        ("k:NoExecute@60 k=v:NoExecute@90", Patience::For(Period::from_secs(90))),
        ("k=v:NoExecute@90 k:NoExecute@60", Patience::For(Period::from_secs(90))),
        ("k:NoExecute@-9 k=w:NoExecute", Patience::For(Period(0))),
    ];
    for (own, expected) in cases {
        assert_eq!(patience(&tolerations(own), &taint("k=v:NoExecute")), expected, "{own}");
    }
}

#[test]
fn a_pod_is_refused_by_the_first_taint_it_does_not_tolerate() {
    let cases = [
        ("", "a:PreferNoSchedule b:NoSchedule c:NoExecute", Some("b:NoSchedule")),
        ("b", "a:PreferNoSchedule b:NoSchedule c:NoExecute", Some("c:NoExecute")),
        ("b c:NoExecute@1", "a:PreferNoSchedule b:NoSchedule c:NoExecute", None),
        ("*", "a:NoSchedule b:NoExecute", None),
    ];
    for (own, given, expected) in cases {
        let given = taints(given);
        let first = first_untolerated(&tolerations(own), &given).map(ToString::to_string);
        assert_eq!(first.as_deref(), expected, "{own}");
    }
}

const LOST: [&str; 2] =
    ["node.kubernetes.io/not-ready:NoExecute for 300s", "node.kubernetes.io/unreachable:NoExecute for 300s"];

#[test]
fn te_11_a_pod_without_tolerations_for_lost_nodes_gets_the_defaults() {
    let [not_ready, unreachable] = LOST;
    let cases: [(&str, &[&str]); 7] = [
        ("", &[not_ready, unreachable]),
        ("k:NoExecute", &["k:NoExecute", not_ready, unreachable]),
        ("node.kubernetes.io/not-ready:NoExecute@7", &["node.kubernetes.io/not-ready:NoExecute for 7s", unreachable]),
        ("node.kubernetes.io/unreachable", &["node.kubernetes.io/unreachable", not_ready]),
        (
            "node.kubernetes.io/not-ready:NoSchedule",
            &["node.kubernetes.io/not-ready:NoSchedule", not_ready, unreachable],
        ),
        ("*", &["*"]),
        ("*:NoExecute@1", &["*:NoExecute for 1s"]),
    ];
    for (own, expected) in cases {
        let completed = with_defaults(&tolerations(own), Period::from_secs(300));
        assert_eq!(shown(&completed), expected, "{own}");
        assert_eq!(with_defaults(&completed, Period::from_secs(5)), completed, "once they are there they stay");
    }
}

#[test]
fn te_12_daemon_pods_tolerate_lost_nodes_and_pressure() {
    let plain = with_daemon_defaults(&tolerations("k"), false);
    let expected = [
        "k",
        "node.kubernetes.io/not-ready:NoExecute",
        "node.kubernetes.io/unreachable:NoExecute",
        "node.kubernetes.io/disk-pressure:NoSchedule",
        "node.kubernetes.io/memory-pressure:NoSchedule",
        "node.kubernetes.io/pid-pressure:NoSchedule",
        "node.kubernetes.io/unschedulable:NoSchedule",
    ];
    assert_eq!(shown(&plain), expected);
    let host = with_daemon_defaults(&[], true);
    assert_eq!(
        host.last().map(ToString::to_string).as_deref(),
        Some("node.kubernetes.io/network-unavailable:NoSchedule")
    );
    assert_eq!(with_daemon_defaults(&host, true), host, "nothing is there twice");
    let impatient = with_daemon_defaults(&tolerations("node.kubernetes.io/unreachable:NoExecute@5"), false);
    assert_eq!(patience(&impatient, &taint("node.kubernetes.io/unreachable:NoExecute")), Patience::Endless);
}

#[test]
fn operators_are_written_as_upstream_writes_them() {
    for text in ["Equal", "Exists", "Lt", "Gt"] {
        assert_eq!(text.parse::<TolerationOperator>().map(TolerationOperator::as_str), Ok(text));
    }
    assert_eq!(
        "equal".parse::<TolerationOperator>().unwrap_err().to_string(),
        "\"equal\" is not one of Equal, Exists, Lt, Gt"
    );
    assert_eq!(
        shown(&tolerations("* k=v:NoExecute@3 k<5 k>6:NoSchedule")),
        ["*", "k=v:NoExecute for 3s", "k<5", "k>6:NoSchedule"]
    );
}
