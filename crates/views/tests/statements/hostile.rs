//! Views that ask for too much.

use sql::Value;
use thalweg_views::{RefreshLimits, Refresher};

use crate::world::{SECOND_NS, World};

fn count(world: &World, query: &str) -> i64 {
    let rows = world.ask(query);
    let Value::Int(count) = rows[0][0] else { panic!("{rows:?}") };
    count
}

/// A window of more groups than a computation may hold fails with its reason, and costs other views nothing.
#[test]
fn a_view_of_too_many_groups_fails_alone() {
    const GROUPS: i64 = 3_000;
    let mut world = World::empty(9);
    let at_ns = world.db.now_ns() - 600 * SECOND_NS;
    let line = |host: i64| format!("t,h=h{host} v=1i {at_ns}\n");
    let lines = (0..GROUPS).map(line).collect::<String>();
    world.write("default", &format!("{lines}other v=1i {at_ns}"));
    world.ask("CREATE MATERIALIZED VIEW groups AS SELECT time_bucket('1 minute', time) AS bucket, h, sum(v) AS s FROM t GROUP BY 1, 2");
    world.ask("CREATE MATERIALIZED VIEW whole AS SELECT time_bucket('1 minute', time) AS bucket, sum(v) AS s FROM other GROUP BY 1");
    world.refresher = Refresher::new(world.db.clone(), RefreshLimits { samples_max: 1_000, ..Default::default() });
    for _ in 0..20 {
        world.refresher.pass().unwrap();
    }
    let error = world.db.view_status("default", "groups").error.unwrap();
    assert!(error.contains("samples"), "{error}");
    assert_eq!(world.db.view_status("default", "whole").error, None);
    assert!(!world.db.view("default", "whole").unwrap().state.is_pending());
    // A query that may hold more reads it meanwhile, and it is stored once more may be held.
    assert_eq!(count(&world, "SELECT count(*) FROM groups"), GROUPS);
    world.refresher = Refresher::new(world.db.clone(), RefreshLimits::default());
    world.settle();
    assert_eq!(world.db.view_status("default", "groups").error, None);
    assert!(!world.db.view("default", "groups").unwrap().state.is_pending());
}

/// Between a row of 1970 and one of now lie more windows than can be looked at one by one.
#[test]
fn a_past_without_rows_takes_no_time() {
    let mut world = World::empty(9);
    let now_ns = world.db.now_ns();
    world.write("default", &format!("t v=1i {SECOND_NS}\nt v=2i {}", now_ns - 600 * SECOND_NS));
    world.ask(
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 second', time) AS bucket, sum(v) AS s FROM t GROUP BY 1",
    );
    let passes = (0..60).take_while(|_| world.refresher.pass().unwrap()).count();
    assert!(passes < 40, "{passes} passes");
    assert!(!world.db.view("default", "v").unwrap().state.is_pending());
    assert_eq!(count(&world, "SELECT count(*) FROM v"), 2);
}
