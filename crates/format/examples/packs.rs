//! How small the records of some files become, and what that costs: the files as they are, cut into records of one
//! size, each packed and unpacked by itself, as the engine would.
//!
//!     cargo run --release -p headpond-format --example packs -- 16384 DATADIR/sbtest/*.ibd

use std::error::Error;
use std::time::{Duration, Instant};

use headpond_base::{BLOCK, Block, Compression, Generation, ObjectId, PoolId};
use headpond_format::{UNIT, Writer, finish_packed, pack, verify_packed};

const WRITER: Writer = Writer { pool: PoolId([1; 16]), generation: Generation(3) };

const WAYS: [Compression; 4] = [Compression::Lz4, Compression::Zstd(1), Compression::Zstd(3), Compression::Zstd(9)];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let record: usize = arguments.next().ok_or("usage: packs RECORD-BYTES FILE...")?.parse()?;
    if record == 0 || record > 65536 || !record.is_multiple_of(BLOCK) {
        return Err("records have 4096 to 65536 bytes, in whole blocks".into());
    }
    let mut records = Vec::new();
    for file in arguments {
        let bytes = std::fs::read(file)?;
        records.extend(bytes.chunks_exact(record).map(<[u8]>::to_vec));
    }
    let zeros = records.iter().filter(|bytes| bytes.iter().all(|byte| *byte == 0)).count();
    records.retain(|bytes| bytes.iter().any(|byte| *byte != 0));
    println!("{} records of {record} bytes; {zeros} more that are zeros are left out", records.len());
    println!("{:8} {:>10} {:>10} {:>12} {:>12}", "", "times", "as it is", "pack us", "unpack us");
    for way in WAYS {
        let (mut stored, mut plain) = (0, 0);
        let (mut packing, mut unpacking) = (Duration::ZERO, Duration::ZERO);
        let mut room = vec![0; record];
        for bytes in &records {
            let started = Instant::now();
            let packed = pack(way, bytes);
            packing += started.elapsed();
            let Some(mut packed) = packed else {
                (stored, plain) = (stored + record, plain + 1);
                continue;
            };
            finish_packed(&mut packed, ObjectId(1), Block(2), WRITER);
            stored += packed.len();
            assert!(packed.len().is_multiple_of(UNIT));
            let started = Instant::now();
            let intact = verify_packed(&packed, ObjectId(1), Block(2), WRITER).ok_or("not intact")?;
            let unpacked = intact.unpack(&mut room);
            unpacking += started.elapsed();
            assert!(unpacked && room == *bytes);
        }
        let each = |time: Duration, of: usize| time.as_secs_f64() * 1e6 / of.max(1) as f64;
        println!(
            "{:8} {:>10.2} {:>9.1}% {:>12.1} {:>12.1}",
            way.to_string(),
            (records.len() * record) as f64 / stored.max(1) as f64,
            plain as f64 * 100.0 / records.len().max(1) as f64,
            each(packing, records.len()),
            each(unpacking, records.len() - plain)
        );
    }
    Ok(())
}
