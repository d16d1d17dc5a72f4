//! scratch
use muster_bench::setting::{Scale, Setting};
#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |k: &str| args.iter().position(|a| a == k).map(|i| args[i + 1].clone());
    let setting = Setting {
        binary: "/work/main/target/release/muster".into(),
        scale: if args.iter().any(|a| a == "small") { Scale::Small } else { Scale::Full },
        nodes: get("--nodes").map(|n| n.parse().unwrap()),
        seconds: get("--seconds").map(|n| n.parse().unwrap()),
        dir: None,
    };
    let outcome = match args[1].as_str() {
        "heartbeats" => muster_bench::heartbeats::run(&setting).await,
        "agents" => muster_bench::agents::run(&setting).await,
        "register" => muster_bench::register::run(&setting).await,
        "fleet" => muster_bench::fleet::run(&setting).await,
        "detect" => muster_bench::detect::run(&setting).await,
        "zone-loss" => muster_bench::zone_loss::run(&setting).await,
        "failover" => muster_bench::failover::run(&setting).await,
        "footprint" => muster_bench::footprint::run(&setting).await,
        _ => panic!(),
    };
    match outcome {
        Ok(o) => {
            for t in &o.tables { println!("{t}"); }
            for f in &o.findings { println!("{} {} {} {:?} {:?}", f.what, f.value, f.unit, f.met(), f.details); }
            println!("faults {:?}", o.faults);
        }
        Err(e) => println!("FAILED {e:?}"),
    }
}
