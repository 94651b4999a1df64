//! A PostgreSQL to try things on: gone, with everything in it, when this process ends.

use punctual_testing::Postgres;

/// Away from the port of a server that may be there.
const PORT: u16 = 7432;

fn main() {
    let server = Postgres::start_on(PORT, &["max_connections=300"]);
    let address = server.create("punctual");
    println!("PostgreSQL is ready; it is gone when you press Ctrl-C. In other terminals:\n");
    println!("  export PUNCTUAL_STORE={address}");
    loop {
        std::thread::park();
    }
}
