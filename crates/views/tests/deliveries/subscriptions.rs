//! Subscriptions: line protocol to other servers.

use access::scope::Scope;
use influxql::SubscriptionStatement;
use thalweg_views::delivery::{ListedSubscription, Maker};

use crate::world::{Mode, World, host_of, options};

fn run(world: &World, sends_to_all: bool, destinations: &[&str]) -> Result<Vec<ListedSubscription>, String> {
    let statement = SubscriptionStatement::Create {
        name: "s".to_owned(),
        database: "default".to_owned(),
        policy: "autogen".to_owned(),
        sends_to_all,
        destinations: destinations.iter().map(|url| (*url).to_owned()).collect(),
    };
    run_statement(world, &statement)
}

fn run_statement(world: &World, statement: &SubscriptionStatement) -> Result<Vec<ListedSubscription>, String> {
    let maker = Maker { database: "", scope: &Scope::open() };
    world.deliveries().subscription_statement(statement, maker).map_err(|error| error.to_string())
}

/// The lines that a host got of `cpu,host=a`.
fn steps(world: &World, host: &str) -> Vec<i64> {
    let receivers = world.receivers.lock().unwrap();
    let of_host = receivers.taken.iter().filter(|request| host_of(&request.url) == host);
    let bodies: Vec<String> = of_host.map(|request| String::from_utf8(request.body.clone()).unwrap()).collect();
    let lines = bodies.iter().flat_map(|body| body.lines()).filter(|line| line.starts_with("cpu,host=a "));
    let step = |line: &str| line.split("n=").nth(1).unwrap().split('i').next().unwrap().parse().unwrap();
    lines.map(step).collect()
}

#[test]
fn each_destination_gets_everything_whatever_the_others_do() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    run(&world, true, &["http://one", "http://two:8086/", "udp://three:9"]).unwrap();
    world.mode("two:8086", Mode::IsDown);
    world.write(10);
    world.network.run_ms(5_000);
    let expected: Vec<i64> = (0..10).collect();
    assert_eq!((steps(&world, "one"), steps(&world, "three:9")), (expected.clone(), expected));
    assert_eq!(steps(&world, "two:8086"), [0; 0]);
    world.restart(true);
    world.mode("two:8086", Mode::Takes);
    world.write(2);
    world.network.run_ms(60_000);
    assert_eq!(steps(&world, "two:8086"), (0..12).collect::<Vec<_>>());
    let receivers = world.receivers.lock().unwrap();
    assert!(receivers.taken.iter().any(|request| {
        request.url == "http://two:8086/write?consistency=&db=default&precision=ns&rp=autogen"
            && request.method == "POST"
    }));
    let datagram = receivers.taken.iter().find(|request| request.method == "UDP").unwrap();
    assert!(!datagram.body.contains(&b'\n'), "a line is a datagram");
    let origin = thalweg_views::origin_text(world.db().incarnation());
    let mut posts = receivers.taken.iter().filter(|request| request.method == "POST");
    assert!(posts.all(|post| post.header(thalweg_views::ORIGIN_HEADER) == Some(&*origin)));
}

#[test]
fn destinations_that_take_turns_stand_in_for_one_another() {
    let mut world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    run(&world, false, &["http://one", "http://two"]).unwrap();
    world.write(6);
    world.network.run_ms(5_000);
    let (one, two) = (steps(&world, "one"), steps(&world, "two"));
    assert!(!one.is_empty() && !two.is_empty());
    let mut all = [one, two].concat();
    all.sort_unstable();
    assert_eq!(all, (0..6).collect::<Vec<_>>());
    world.mode("two", Mode::IsDown);
    world.write(6);
    world.network.run_ms(1_000);
    let mut all = [steps(&world, "one"), steps(&world, "two")].concat();
    all.sort_unstable();
    assert_eq!(all, (0..12).collect::<Vec<_>>());
}

#[test]
fn subscriptions_are_listed_and_dropped() {
    let world = World::new(options);
    world.lines("cpu,host=z usage=-1,n=0i 1");
    assert!(run(&world, true, &["http://one?x=secret"]).is_err_and(|error| error.contains('?')));
    run(&world, true, &["http://u:p@one"]).unwrap();
    assert_eq!(run(&world, true, &["http://one"]), Err("subscription already exists".to_owned()));
    let listed = run_statement(&world, &SubscriptionStatement::Show).unwrap();
    assert_eq!((listed.len(), listed[0].mode, listed[0].destinations.concat()), (1, "ALL", "http://one/".to_owned()));
    let drop = SubscriptionStatement::Drop {
        name: "s".to_owned(),
        database: "default".to_owned(),
        policy: "autogen".to_owned(),
    };
    run_statement(&world, &drop).unwrap();
    assert_eq!(run_statement(&world, &drop), Err("subscription not found".to_owned()));
    assert!(world.db().log_cursors().is_empty());
    assert!(run(&world, true, &["udp://three"]).is_err_and(|error| error.contains("port")));
    let hosts: Vec<String> = (0..20).map(|number| format!("http://many{number}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let named = |name: usize| SubscriptionStatement::Create {
        name: name.to_string(),
        database: "default".to_owned(),
        policy: "autogen".to_owned(),
        sends_to_all: true,
        destinations: hosts.iter().map(|url| (*url).to_owned()).collect(),
    };
    for name in 0..10 {
        run_statement(&world, &named(name)).unwrap();
    }
    assert!(run_statement(&world, &named(10)).is_err_and(|error| error.contains("200 is the most")));
    let user = world.add_account("user", &["all:default"]);
    let maker = Maker { database: "", scope: &user };
    assert!(world.deliveries().subscription_statement(&SubscriptionStatement::Show, maker).is_err());
}
