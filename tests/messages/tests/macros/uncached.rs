use cachescope::uncached;

fn main() {
    uncached!();
    uncached!("loop", { work() });
    uncached!(work(); work());
    uncached!(let number = 1);
}

fn work() {}
