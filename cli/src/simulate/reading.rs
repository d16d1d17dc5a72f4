//! The reader of scenario files, from file to [`Scenario`]: every mistake is named with its line, its field and a
//! remedy.

mod node;
mod owner;
mod pod;
mod selection;
mod timeline;

use muster_lifecycle::policy::Policy;
use muster_lifecycle::time::Period;

use self::selection::Roster;
use super::located::{self, Fault, Field, clipped};
use super::scenario::Scenario;
use super::world::Millis;

/// Longer than anything worth simulating, and far from where sums could overflow.
const LENGTH_MAX: Period = Period::from_secs(366 * 24 * 3600);

const SECTIONS: [&str; 5] = ["policy", "nodes", "pods", "timeline", "until"];

impl Scenario {
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let document = located::parse(text.strip_prefix('\u{feff}').unwrap_or(text))?;
        let document = Field::document(&document);
        let fields = document.fields(&SECTIONS)?;
        let policy = fields.get("policy").map_or_else(|| Ok(Policy::default()), policy)?;
        let until = duration(fields.require("until", "say when the simulation ends, such as until: 15m")?)?;
        let machines =
            node::machines(fields.require("nodes", "list the nodes, such as nodes: [{name: a, count: 5}]")?)?;
        let roster = Roster::new(&machines);
        let pods = fields.get("pods").map_or_else(|| Ok(Default::default()), |pods| pod::pods(pods, &roster))?;
        let timeline = fields.get("timeline");
        let timeline = timeline.map_or_else(|| Ok(Vec::new()), |timeline| timeline::timeline(timeline, roster))?;
        Ok(Self { policy, machines, pods, timeline, until })
    }
}

/// The settings by the names they have in Kubernetes' configuration.
fn policy(field: &Field<'_>) -> Result<Policy, Fault> {
    let mut policy = Policy::default();
    let known: Vec<String> = policy.settings().iter().map(|(flag, _)| camel_case(flag)).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    field.fields(&known)?;
    let entries = field.entries()?;
    for entry in &entries {
        let value = entry.field.text()?;
        policy
            .set(&kebab_case(entry.name), &value)
            .map_err(|invalid| entry.field.fault(in_the_files_words(&invalid.rule.to_string())))?;
    }
    policy.validate().map_err(|invalid| {
        let named = entries.iter().find(|entry| kebab_case(entry.name) == invalid.field.as_str());
        let rule = in_the_files_words(&invalid.rule.to_string());
        match named {
            Some(entry) => entry.field.fault(rule),
            None => field.fault(format!("{}: {rule}", camel_case(&invalid.field))),
        }
    })?;
    Ok(policy)
}

/// Rules name other settings by their flags; a file has its own names for them.
fn in_the_files_words(rule: &str) -> String {
    let mut flags = Policy::default().settings().map(|(flag, _)| flag);
    // The longest first, because some names end in the name of another.
    flags.sort_by_key(|flag| std::cmp::Reverse(flag.len()));
    flags.iter().fold(rule.to_owned(), |rule, flag| rule.replace(flag, &camel_case(flag)))
}

fn kebab_case(name: &str) -> String {
    let mut flag = String::new();
    for char in name.chars() {
        if char.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(char.to_ascii_lowercase());
    }
    flag
}

fn camel_case(flag: &str) -> String {
    let mut words = flag.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.len().min(1));
        name + &initial.to_ascii_uppercase() + rest
    })
}

fn duration(field: &Field<'_>) -> Result<Millis, Fault> {
    length(field, &field.text()?)
}

fn length(field: &Field<'_>, text: &str) -> Result<Millis, Fault> {
    if text.starts_with('-') {
        return Err(field.fault(format!("{:?} is negative: write 0s or more", clipped(text))));
    }
    let period: Period = text.parse().map_err(|error| field.fault(error))?;
    if period > LENGTH_MAX {
        return Err(field.fault(format!("{period} is too long: at most {LENGTH_MAX}")));
    }
    Ok(period.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
policy: {nodeMonitorPeriod: 5s, nodeMonitorGracePeriod: 40s, nodeEvictionRate: 0.1, largeClusterSizeThreshold: 50}
nodes:
  - {name: a, count: 5, region: r1, zone: z1, labels: {}, taints: ["k=v:NoSchedule"],
     ready: "True",
     heartbeat: 10s,
     status: 5m,
     created: -1h}
  - {name: b, zone: z2}
pods:
  - {name: p, count: 2, node: a-0, owner: ReplicaSet, gracePeriod: 30s, tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 30}]}
  - {name: q, count: 1, node: {zone: z1, percent: 40}}
timeline:
  - {at: 2m, do: resume, nodes: [a-0]}
  - {at: 30s, do: silence, nodes: {zone: z1, percent: 60}}
until: 15m
"#;

    fn fault(from: &str, to: &str) -> String {
        assert!(WHOLE.contains(from), "{from}");
        Scenario::parse(&WHOLE.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn the_whole_format_is_understood() {
        let scenario = Scenario::parse(WHOLE).unwrap();
        let names: Vec<&str> = scenario.machines.iter().map(|machine| machine.name.as_str()).collect();
        assert_eq!(names, ["a-0", "a-1", "a-2", "a-3", "a-4", "b"]);
        let pods: Vec<&str> = scenario.pods.keys().map(|name| name.as_str()).collect();
        assert_eq!(pods, ["p-0", "p-1", "q-a-0-0", "q-a-1-0"]);
        assert_eq!(scenario.until, 900_000);
        assert_eq!(scenario.timeline.iter().map(|entry| entry.at).collect::<Vec<_>>(), [30_000, 120_000]);
        let owner = |pod: &str| scenario.pods[pod].owner.as_ref().map(|owner| format!("{}/{}", owner.kind, owner.name));
        assert_eq!((owner("p-1").as_deref(), owner("q-a-0-0")), (Some("ReplicaSet/p"), None));
        let p = &scenario.pods["p-0"];
        assert_eq!((p.node.as_deref(), p.grace), (Some("a-0"), Some(30)));
        assert_eq!(p.tolerations.iter().map(ToString::to_string).collect::<Vec<_>>(), ["k:NoExecute for 30s"]);
        let silenced = crate::simulate::scenario::Action::Silence(["a-0", "a-1", "a-2"].map(Into::into).to_vec());
        assert_eq!(scenario.timeline[0].action, silenced);
    }

    #[test]
    fn errors_in_policy_and_nodes_name_line_field_and_remedy() {
        let cases = [
            ("until: 15m", "until: 15", "16: until: \"15\" is not a duration: write numbers with a unit"),
            (
                "until: 15m",
                "till: 15m",
                "16: there is no field \"till\" here: use policy, nodes, pods, timeline, until",
            ),
            ("until: 15m", "", "has no until: say when the simulation ends"),
            ("until: 15m", "until: 9000h", "16: until: 9000h is too long: at most 8784h"),
            ("nodeEvictionRate: 0.1", "nodeEvictionRate: -1", "2: policy.nodeEvictionRate: \"-1\" is not a rate"),
            ("nodeEvictionRate: 0.1", "evictionRate: 1", "2: policy: there is no field \"evictionRate\" here"),
            (
                "nodeMonitorPeriod: 5s",
                "nodeMonitorPeriod: 50s",
                "2: policy.nodeMonitorPeriod: 50s is above nodeMonitorGracePeriod (40s)",
            ),
            (
                "nodeMonitorPeriod: 5s, nodeMonitorGracePeriod: 40s",
                "nodeMonitorGracePeriod: 4s",
                "2: policy: nodeMonitorPeriod: 5s is above nodeMonitorGracePeriod (4s)",
            ),
            ("name: a,", "name: A_,", "4: nodes[0].name: \"A_-0\" is not a DNS-1123 subdomain"),
            ("count: 5", "count: 0", "4: nodes[0].count: \"0\" is not a whole number from 1 to 1000000"),
            ("count: 5", "count: 1000001", "4: nodes[0].count"),
            (
                "ready: \"True\"",
                "ready: maybe",
                "5: nodes[0].ready: \"maybe\" is not one of True, False, Unknown, none",
            ),
            ("heartbeat: 10s", "heartbeat: -10s", "6: nodes[0].heartbeat: \"-10s\" is negative"),
            ("heartbeat: 10s", "heartbeat: 1ms", "6: nodes[0].heartbeat: 1ms is too often"),
            ("k=v:NoSchedule", "k=v:Never", "4: nodes[0].taints[0]: \"Never\" is not one of"),
            (
                "[\"k=v:NoSchedule\"]",
                "[\"k=1:NoSchedule\", \"k=2:NoSchedule\"]",
                "4: nodes[0].taints[1]: there is a taint k:NoSchedule already: name it once",
            ),
            ("name: b", "name: a-3", "9: nodes[1].name: there are two nodes named \"a-3\""),
            ("name: b, zone: z2", "name: b, zone: \"z 2\"", "9: nodes[1].zone: \"z 2\" is not a label value"),
            (
                "zone: z1, labels: {}",
                "zone: z1, labels: {topology.kubernetes.io/zone: z3}",
                "4: nodes[0].zone: is \"z1\", but the label topology.kubernetes.io/zone is \"z3\": leave one of them out",
            ),
            (
                "zone: z1, labels: {}",
                "zone: z1, labels: {failure-domain.beta.kubernetes.io/region: r2}",
                "4: nodes[0].region: is \"r1\", but the label failure-domain.beta.kubernetes.io/region is \"r2\"",
            ),
        ];
        expect_faults(&cases);
    }

    #[test]
    fn errors_in_pods_name_line_field_and_remedy() {
        let cases = [
            ("node: a-0", "node: a-9", "11: pods[0].node: there is no node \"a-9\""),
            (
                "name: q, count: 1, node: {zone: z1, percent: 40}",
                "name: p-1, node: b",
                "12: pods[1].name: there are two pods named \"p-1\"",
            ),
            (
                "z2}\npods:\n  - {name: p, count: 2, node: a-0",
                "z2, created: 1m}\npods:\n  - {name: p, count: 2, node: b",
                "11: pods[0].node: node \"b\" is created after the start, when pods are there already: leave `node` out",
            ),
            ("operator: Exists", "operator: Is", "11: pods[0].tolerations[0].operator: \"Is\" is not one of"),
            (
                "gracePeriod: 30s",
                "gracePeriod: 200h",
                "11: pods[0]: spec.terminationGracePeriodSeconds: 720000 is too long",
            ),
            (
                "owner: ReplicaSet",
                "owner: Deployment/p",
                "11: pods[0].owner: \"Deployment\" is not one of ReplicaSet, StatefulSet, DaemonSet",
            ),
            ("owner: ReplicaSet", "owner: ReplicaSet/A_", "11: pods[0].owner: \"A_\" is not a DNS-1123 label"),
            (
                "owner: ReplicaSet",
                "owner: StatefulSet/db",
                "11: pods[0].owner: pod \"p-0\" cannot be one of StatefulSet/db: its 2 pods are named db-0 to db-1",
            ),
            (
                "owner: ReplicaSet",
                "owner: DaemonSet/log",
                "11: pods[0].owner: pod \"p-1\" cannot be one of DaemonSet/log: a DaemonSet has one pod on each node",
            ),
            (
                "name: q,",
                "name: q, owner: ReplicaSet/p,",
                "12: pods[1].owner: other pods of ReplicaSet/p have other tolerations",
            ),
        ];
        expect_faults(&cases);
    }

    #[test]
    fn a_pod_may_have_no_node_and_selectors_skip_nodes_created_later() {
        let text = WHOLE.replacen("node: a-0, ", "", 1).replacen("name: b,", "name: b, created: 1m,", 1);
        let scenario = Scenario::parse(&text.replacen("{zone: z1, percent: 40}", "{all: true}", 1)).unwrap();
        assert_eq!(scenario.pods["p-0"].node, None);
        assert_eq!(scenario.pods.keys().filter(|name| name.starts_with("q-")).count(), 5);
    }

    #[test]
    fn errors_in_the_timeline_name_line_field_and_remedy() {
        let cases = [
            ("at: 2m", "at: 2x", "14: timeline[0].at: \"2x\" is not a duration"),
            ("do: resume", "do: revive", "14: timeline[0].do: \"revive\" is not one of silence, resume"),
            ("nodes: [a-0]", "nodes: [a-0, z-9]", "14: timeline[0].nodes[1]: there is no node \"z-9\""),
            (
                "nodes: [a-0]",
                "nodes: []",
                "14: timeline[0].nodes: names no node: name at least one node, or leave the entry out",
            ),
            ("nodes: [a-0]", "nodes: {zone: z9}", "14: timeline[0].nodes: no node matches"),
            ("nodes: [a-0]", "nodes: {}", "14: timeline[0].nodes: selects nothing: name zone, region or all: true"),
            (
                "percent: 60",
                "percent: 101",
                "15: timeline[1].nodes.percent: \"101\" is not a whole number from 0 to 100",
            ),
            (
                "nodes: [a-0]",
                "nodes: [a-0], taints: [x]",
                "14: timeline[0]: there is no field \"taints\" here: use at, do, nodes",
            ),
        ];
        expect_faults(&cases);
    }

    fn expect_faults(cases: &[(&str, &str, &str)]) {
        for (from, to, part) in cases {
            let message = fault(from, to);
            assert!(message.contains(part), "{from} -> {to}: {message}");
        }
    }

    #[test]
    fn a_zone_and_an_equal_label_are_accepted() {
        let text = WHOLE.replacen("labels: {}", "labels: {topology.kubernetes.io/zone: z1}", 1);
        assert_eq!(Scenario::parse(&text), Scenario::parse(WHOLE));
    }

    #[test]
    fn settings_have_the_names_of_kubernetes_configuration() {
        assert_eq!(kebab_case("nodeMonitorGracePeriod"), "node-monitor-grace-period");
        for (flag, _) in Policy::default().settings() {
            assert_eq!(kebab_case(&camel_case(flag)), flag);
        }
    }
}
