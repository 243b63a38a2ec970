//! Opens a trace, compressed or not. Its first bytes decide, not its name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP: [u8; 2] = [0x1f, 0x8b];
const XZ: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// Bytes read from the file at once, and from the decompressor.
const BUFFER: usize = 256 << 10;

/// The trace's bytes without compression.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    unpack(BufReader::with_capacity(BUFFER, File::open(path)?))
}

fn unpack<R: BufRead + 'static>(mut packed: R) -> io::Result<Box<dyn BufRead>> {
    let start = packed.fill_buf()?;
    if start.starts_with(&ZSTD) {
        return Ok(buffered(Zstd { packed, frame: None }));
    }
    if start.starts_with(&GZIP) {
        return Ok(buffered(flate2::bufread::MultiGzDecoder::new(packed)));
    }
    if start.starts_with(&XZ) {
        return Ok(buffered(lzma_rust2::XzReader::new(packed, true)));
    }
    Ok(Box::new(packed))
}

fn buffered<R: Read + 'static>(bytes: R) -> Box<dyn BufRead> {
    Box::new(BufReader::with_capacity(BUFFER, bytes))
}

/// Zstandard frames one after the other, as `zstd` and `pzstd` write them.
struct Zstd<R: BufRead> {
    packed: R,
    frame: Option<Box<ruzstd::decoding::FrameDecoder>>,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let broken = |error: ruzstd::decoding::errors::FrameDecoderError| io::Error::other(error.to_string());
        loop {
            let Some(frame) = &mut self.frame else {
                if self.packed.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                let mut frame = Box::new(ruzstd::decoding::FrameDecoder::new());
                frame.init(&mut self.packed).map_err(broken)?;
                self.frame = Some(frame);
                continue;
            };
            while frame.can_collect() == 0 && !frame.is_finished() {
                let strategy = ruzstd::decoding::BlockDecodingStrategy::UptoBytes(BUFFER);
                frame.decode_blocks(&mut self.packed, strategy).map_err(broken)?;
            }
            let count = frame.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            self.frame = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    fn unpacked(bytes: Vec<u8>) -> Vec<u8> {
        let mut all = Vec::new();
        unpack(Cursor::new(bytes)).unwrap().read_to_end(&mut all).unwrap();
        all
    }

    fn text() -> Vec<u8> {
        (0..60_000).map(|line: u32| format!("{}\n", line.wrapping_mul(7919) % 1000)).collect::<String>().into_bytes()
    }

    #[test]
    fn zstandard_in_two_frames_is_read_to_its_end() {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let half = || ruzstd::encoding::compress_to_vec(text().as_slice(), level);
        let packed = [half(), half()].concat();
        assert!(packed.len() < text().len());
        assert_eq!(unpacked(packed), [text(), text()].concat());
    }

    #[test]
    fn gzip_in_two_members_is_read_to_its_end() {
        let half = || {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(&text()).unwrap();
            packer.finish().unwrap()
        };
        assert_eq!(unpacked([half(), half()].concat()), [text(), text()].concat());
    }

    #[test]
    fn xz_is_read_to_its_end() {
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut packer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        packer.write_all(&text()).unwrap();
        assert_eq!(unpacked(packer.finish().unwrap()), text());
    }

    #[test]
    fn what_is_not_compressed_is_taken_as_it_is() {
        assert_eq!(unpacked(text()), text());
        assert_eq!(unpacked(Vec::new()), Vec::<u8>::new());
    }

    #[test]
    fn a_broken_archive_is_an_error_and_no_short_trace() {
        let mut packed =
            ruzstd::encoding::compress_to_vec(text().as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
        packed.truncate(packed.len() / 2);
        assert!(unpack(Cursor::new(packed)).and_then(|mut bytes| bytes.read_to_end(&mut Vec::new())).is_err());
    }
}
