//! Tests of rules P-3 to P-5, one table each.

use super::super::signal::Signal;
use super::*;
use crate::facts::Filesystem;

const MI: u64 = 1 << 20;

fn without_pressure() -> MachineSample {
    let filesystem = Filesystem { capacity: 1000, available: 900, inodes: 1000, inodes_free: 900 };
    MachineSample {
        memory: Ok(ResourceLevel { available: 900 * MI, capacity: 1000 * MI }),
        pids: Ok(ResourceLevel { available: 900, capacity: 1000 }),
        nodefs: Ok(filesystem),
        imagefs: Ok(filesystem),
    }
}

fn with_memory(available: u64) -> MachineSample {
    MachineSample { memory: Ok(ResourceLevel { available: available * MI, capacity: 1000 * MI }), ..without_pressure() }
}

fn with(signal: Signal, available: u64) -> MachineSample {
    let mut sample = without_pressure();
    let filesystem =
        |bytes, inodes_free| Ok(Filesystem { capacity: 1000, available: bytes, inodes: 1000, inodes_free });
    match signal {
        Signal::MemoryAvailable => sample.memory = Ok(ResourceLevel { available: available * MI, capacity: 1000 * MI }),
        Signal::PidAvailable => sample.pids = Ok(ResourceLevel { available, capacity: 1000 }),
        Signal::NodefsAvailable => sample.nodefs = filesystem(available, 900),
        Signal::NodefsInodesFree => sample.nodefs = filesystem(900, available),
        Signal::ImagefsAvailable => sample.imagefs = filesystem(available, 900),
        Signal::ImagefsInodesFree => sample.imagefs = filesystem(900, available),
    }
    sample
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The reported states after each of the samples, given as second and sample.
fn reported(pressures: &mut Pressures, kind: PressureKind, samples: &[(u64, MachineSample)]) -> Vec<bool> {
    let start = Instant::now();
    let mut report = |(at, sample): &(u64, MachineSample)| {
        let now = start + seconds(*at);
        pressures.observe(sample, now);
        pressures.state(kind, sample, now) == PressureState::Pressure
    };
    samples.iter().map(&mut report).collect()
}

#[test]
fn p_3_each_signal_turns_on_its_condition_and_no_other() {
    let hard = "memory.available<10%,nodefs.available<10%,nodefs.inodesFree<10%,imagefs.available<10%,\
                imagefs.inodesFree<10%,pid.available<10%";
    let thresholds = Thresholds::parse(Some(hard), None, None, None).unwrap();
    for signal in Signal::ALL {
        let mut pressures = Pressures::new(&thresholds, TRANSITION_PERIOD);
        let (sample, now) = (with(signal, 50), Instant::now());
        pressures.observe(&sample, now);
        for kind in PressureKind::ALL {
            let expected = if kind == signal.pressure() { PressureState::Pressure } else { PressureState::NoPressure };
            assert_eq!(pressures.state(kind, &sample, now), expected, "{signal} {kind:?}");
        }
    }
}

#[test]
fn p_1_the_defaults_apply_to_memory_and_disks_only() {
    let cases = [
        (Signal::MemoryAvailable, 100, 99),
        (Signal::NodefsAvailable, 100, 99),
        (Signal::NodefsInodesFree, 50, 49),
        (Signal::ImagefsAvailable, 150, 149),
        (Signal::ImagefsInodesFree, 50, 49),
    ];
    for (signal, enough, too_little) in cases {
        for (available, expected) in [(enough, false), (too_little, true)] {
            let mut pressures = Pressures::new(&Thresholds::default(), TRANSITION_PERIOD);
            let found = reported(&mut pressures, signal.pressure(), &[(0, with(signal, available))]);
            assert_eq!(found, [expected], "{signal} {available}");
        }
    }
    let mut pressures = Pressures::new(&Thresholds::default(), TRANSITION_PERIOD);
    assert_eq!(reported(&mut pressures, PressureKind::Pid, &[(0, with(Signal::PidAvailable, 0))]), [false]);
}

#[test]
fn p_5_a_condition_stays_on_until_it_was_not_observed_for_the_transition_period() {
    let mut pressures = Pressures::new(&Thresholds::default(), TRANSITION_PERIOD);
    let samples = [
        (0, with_memory(500)),
        (10, with_memory(50)),
        (20, with_memory(500)),
        (300, with_memory(500)),
        (309, with_memory(500)),
        (310, with_memory(500)),
        (320, with_memory(50)),
        (600, with_memory(50)),
        (890, with_memory(500)),
        (900, with_memory(500)),
    ];
    let expected = [false, true, true, true, true, false, true, true, true, false];
    assert_eq!(reported(&mut pressures, PressureKind::Memory, &samples), expected);
}

/// However rarely the machine is sampled, and however short the period is.
#[test]
fn p_5_a_threshold_that_is_met_is_a_pressure_whatever_the_period() {
    let mut pressures = Pressures::new(&Thresholds::default(), Duration::ZERO);
    let samples = [(0, with_memory(50)), (600, with_memory(50)), (610, with_memory(500))];
    assert_eq!(reported(&mut pressures, PressureKind::Memory, &samples), [true, true, false]);
}

#[test]
fn p_4_a_threshold_stays_met_until_its_minimum_is_reclaimed() {
    let thresholds = Thresholds::parse(Some("memory.available<100Mi"), None, None, Some("memory.available=50Mi"));
    let mut pressures = Pressures::new(&thresholds.unwrap(), Duration::ZERO);
    // Without a transition period an observed pressure ends at once, so the test reads whether it was observed.
    let start = Instant::now();
    let mut is_met = |available| {
        pressures.observe(&with_memory(available), start);
        pressures.watches[0].met_since.is_some()
    };
    let steps = [(120, false), (99, true), (100, true), (149, true), (150, false), (149, false), (100, false)];
    for (available, expected) in steps {
        assert_eq!(is_met(available), expected, "{available}");
    }
}

#[test]
fn p_5_a_soft_threshold_is_a_pressure_at_once_and_a_shortage_after_its_grace() {
    let thresholds = Thresholds::parse(
        Some("memory.available<100Mi"),
        Some("memory.available<200Mi"),
        Some("memory.available=30s"),
        None,
    );
    let mut pressures = Pressures::new(&thresholds.unwrap(), TRANSITION_PERIOD);
    let start = Instant::now();
    let mut shortages = |at, available| {
        let (sample, now) = (with_memory(available), start + seconds(at));
        let found = pressures.observe(&sample, now);
        assert_eq!(pressures.state(PressureKind::Memory, &sample, now), PressureState::Pressure);
        found.iter().map(|shortage| shortage.threshold.to_string()).collect::<Vec<_>>()
    };
    assert!(shortages(0, 150).is_empty());
    assert!(shortages(29, 150).is_empty());
    assert_eq!(shortages(30, 150), ["memory.available<200Mi"]);
    assert!(shortages(40, 150).is_empty(), "it is reported once");
    assert_eq!(shortages(50, 50), ["memory.available<100Mi"], "a hard threshold has no grace");
    assert!(shortages(60, 300).is_empty());
    assert!(shortages(70, 150).is_empty(), "the grace begins anew");
}

#[test]
fn an_unreadable_signal_is_unknown_unless_it_was_a_pressure_lately() {
    let unread = MachineSample { nodefs: Err("it hangs".into()), ..without_pressure() };
    let mut pressures = Pressures::new(&Thresholds::default(), TRANSITION_PERIOD);
    let start = Instant::now();
    let mut disk = |at, sample: &MachineSample| {
        pressures.observe(sample, start + seconds(at));
        pressures.state(PressureKind::Disk, sample, start + seconds(at))
    };
    assert_eq!(disk(0, &unread), PressureState::Unknown("it hangs".into()));
    assert_eq!(disk(10, &with(Signal::ImagefsAvailable, 10)), PressureState::Pressure);
    assert_eq!(disk(20, &unread), PressureState::Pressure);
    assert_eq!(disk(310, &unread), PressureState::Unknown("it hangs".into()));
    assert_eq!(disk(320, &without_pressure()), PressureState::NoPressure);
}

#[test]
fn a_signal_without_a_threshold_need_not_be_read() {
    let thresholds = Thresholds::parse(Some("memory.available<1Gi"), None, None, None).unwrap();
    let pressures = Pressures::new(&thresholds, TRANSITION_PERIOD);
    let blind = MachineSample { memory: without_pressure().memory, ..MachineSample::empty() };
    assert_eq!(pressures.unread(&blind), None);
    assert_eq!(pressures.state(PressureKind::Disk, &blind, Instant::now()), PressureState::NoPressure);
    assert!(pressures.unread(&MachineSample::empty()).is_some());
}
