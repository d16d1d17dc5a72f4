//! A wall clock that jumps is not believed at once, so that no certificate expires by a jump.

use muster_lifecycle::time::{Period, WallTime};
use muster_lifecycle::wall_trust::{DOUBTED_FOR, JUMP_MAX, SETTLING, WallTrust};

const HOUR: u64 = 3_600_000;
const WEEK: i64 = 7 * 24 * 3_600_000;
/// Wall time at boot.
const BOOTED: i64 = 1_700_000_000_000;

/// One reading: the time since boot, and by how much the wall clock is ahead of the true time.
type Reading = (u64, i64);

/// What happens, the first and the further readings, and what is believed after them.
type Case = (&'static str, Reading, &'static [Reading], (i64, Option<i64>));

fn true_time(boot: u64) -> i64 {
    BOOTED + boot.cast_signed()
}

fn wall((boot, ahead): Reading) -> WallTime {
    WallTime(true_time(boot) + ahead)
}

/// By how much the time that is believed after the last reading is ahead of the true time, and the jump that is not.
fn believed(first: Reading, then: &[Reading]) -> (i64, Option<i64>) {
    let mut trust = WallTrust::new(wall(first), Period(first.0));
    for reading in then {
        trust = trust.after(wall(*reading), Period(reading.0));
    }
    let last = then.last().copied().unwrap_or(first);
    let (at, boot) = (wall(last), Period(last.0));
    (trust.time(at, boot).0 - true_time(last.0), trust.jump(at, boot).map(|jump| jump.ahead_ms))
}

#[test]
fn i_02_a_wall_clock_that_jumps_is_not_believed_for_a_while() {
    const SMALL: i64 = JUMP_MAX.0.cast_signed();
    const LARGE: i64 = SMALL + 1;
    const LATER: u64 = HOUR + DOUBTED_FOR.0;
    let table: [Case; 12] = [
        ("it runs", (HOUR, 0), &[(2 * HOUR, 0)], (0, None)),
        ("it is set a little", (HOUR, 0), &[(2 * HOUR, SMALL)], (SMALL, None)),
        ("it jumps ahead", (HOUR, 0), &[(2 * HOUR, LARGE)], (0, Some(LARGE))),
        ("it jumps back", (HOUR, 0), &[(2 * HOUR, -WEEK)], (0, Some(-WEEK))),
        ("it goes on after a jump", (HOUR, 0), &[(HOUR, WEEK), (5 * HOUR, WEEK)], (0, Some(WEEK))),
        ("it is set right", (HOUR, 0), &[(HOUR, WEEK), (2 * HOUR, 0)], (0, None)),
        ("it is set almost right", (HOUR, 0), &[(HOUR, WEEK), (2 * HOUR, SMALL)], (SMALL, None)),
        ("it jumps from one wrong time to another", (HOUR, 0), &[(HOUR, WEEK), (2 * HOUR, -WEEK)], (0, Some(-WEEK))),
        ("just before the end of the doubt", (HOUR, 0), &[(HOUR, WEEK), (LATER - 1, WEEK)], (0, Some(WEEK))),
        ("at the end of the doubt", (HOUR, 0), &[(HOUR, WEEK), (LATER, WEEK)], (WEEK, None)),
        ("it is set after boot", (1_000, -WEEK), &[(SETTLING.0, 0)], (0, None)),
        ("it runs a little fast", (HOUR, 0), &[(2 * HOUR, SMALL), (3 * HOUR, 2 * SMALL)], (2 * SMALL, None)),
    ];
    for (what, first, then, expected) in table {
        assert_eq!(believed(first, then), expected, "{what}");
    }
}

#[test]
fn a_jump_tells_what_it_means_and_what_to_do() {
    let first = WallTrust::new(wall((HOUR, 0)), Period(HOUR));
    let read = (2 * HOUR, 3 * WEEK);
    let trust = first.after(wall(read), Period(read.0));
    let jump = trust.jump(wall(read), Period(read.0)).unwrap();
    assert_eq!(
        jump.to_string(),
        "the wall clock jumped ahead by 504h: certificates are judged by the time as it was known before, for 24h more; \
         set the clock right, or restart the replica if it is right now"
    );
    let back = (2 * HOUR, -WEEK);
    let trust = first.after(wall(back), Period(back.0));
    assert!(trust.jump(wall(back), Period(back.0)).unwrap().to_string().contains("jumped back by 168h: "));
}
