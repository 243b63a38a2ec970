//! The segments in use: their heads, batches and footers, in each copy.

use headpond_base::{BLOCK, BatchNumber, Generation, PoolId, SegmentId};
use headpond_engine::{RecoverError, Recovered};
use headpond_format::{
    Damage, FOOTER_TAIL_BYTES, Geometry, SegmentHead, SegmentRow, SegmentState, SummaryBatch, Superblock, decode_batch,
    decode_footer_tail, decode_segment_head,
};
use headpond_log::{ScanError, Walk, read_footer, walk_segment};

use crate::report::{Findings, Progress, SegmentCounts, Severity};
use crate::whole::{COPIES, Copies};

/// A pool whose segments are examined.
pub(crate) struct Examined<'a> {
    pub(crate) flash: &'a mut dyn Copies,
    pub(crate) superblock: &'a Superblock,
    /// If recovery refuses the pool, each segment's head speaks for itself.
    pub(crate) recovered: &'a Result<Recovered, RecoverError>,
    pub(crate) findings: &'a mut Findings,
}

impl Examined<'_> {
    pub(crate) fn segments(&mut self, progress: &mut dyn FnMut(Progress)) -> SegmentCounts {
        let all = self.superblock.geometry.segments;
        let mut segments = SegmentCounts { all: all.into(), ..SegmentCounts::default() };
        // A lost durable batch costs nothing, unless recovery says so.
        let lost_batch = match self.recovered {
            Err(RecoverError::LostHistory { .. }) => Severity::Loss,
            _ => Severity::Harmless,
        };
        for id in (0..all).map(SegmentId) {
            progress(Progress { doing: "segments", done: id.0.into(), of: all.into() });
            let row = self.recovered.as_ref().ok().map(|recovered| recovered.segments().row(id));
            let (geometry, pool) = (&self.superblock.geometry, self.superblock.pool);
            for copy in 0..COPIES {
                self.flash.choose(copy);
                if !self.flash.has(id) {
                    // The members that have it are not here.
                    if copy == 0 {
                        let in_use = row.as_ref().is_some_and(|row| row.state != SegmentState::Free);
                        segments.count(in_use.then(Used::default));
                    }
                    continue;
                }
                // What damages the parity, or another segment of the row, spoils nothing of what lies in its home.
                if copy > 0 && self.flash.is_of_row(id) {
                    continue;
                }
                let mut segment =
                    Segment { flash: &mut *self.flash, geometry, pool, id, lost_batch, findings: &mut *self.findings };
                let examined = segment.examine(row.clone());
                if let Err(error) = &examined {
                    let what = format!("{error}. The check does not cover what is unreadable.");
                    segment.tell(Severity::Harmless, "", 0, what);
                }
                if copy == 0 {
                    segments.count(examined.unwrap_or_else(|_| Some(Used::default())));
                }
            }
        }
        segments
    }
}

impl SegmentCounts {
    fn count(&mut self, used: Option<Used>) {
        match used {
            Some(used) => {
                self.used += 1;
                self.batches += used.batches;
                self.footers += u64::from(used.footer);
            }
            None => self.free += 1,
        }
    }
}

#[derive(Default)]
struct Used {
    batches: u64,
    footer: bool,
}

struct Segment<'a> {
    flash: &'a mut dyn Copies,
    geometry: &'a Geometry,
    pool: PoolId,
    id: SegmentId,
    lost_batch: Severity,
    findings: &'a mut Findings,
}

impl Segment<'_> {
    fn offset(&self, block: u32) -> u64 {
        self.geometry.byte_of(self.geometry.first_location(self.id).plus(block))
    }

    fn tell(&mut self, severity: Severity, part: &str, block: u32, what: String) {
        let place = self.flash.place(self.geometry.first_location(self.id).plus(block));
        let structure = place.named(&format!("segment {}{part}", self.id));
        self.findings.add(severity, structure, place.offset, what);
    }

    fn examine(&mut self, row: Option<SegmentRow>) -> Result<Option<Used>, ScanError> {
        if row.as_ref().is_some_and(|row| row.state == SegmentState::Free) {
            return Ok(None);
        }
        let offset = self.offset(0);
        let bytes = self.flash.read(offset, BLOCK).map_err(|errno| ScanError::Read { offset, errno })?;
        let head = decode_segment_head(&bytes).and_then(|(head, _)| {
            let ours = (head.pool, head.segment) == (self.pool, self.id);
            if ours { Ok(head) } else { Err(Damage::Foreign("segment head")) }
        });
        let generation = match (&head, &row) {
            (Ok(head), Some(row)) if head.generation != row.generation => {
                // One sync makes a segment's head and its first batch durable, so a power cut may keep the batch
                // alone.
                let what = format!(
                    "it is of life {}, but life {} is in use: a crash came before it was synced, or the device lost \
                     it. The batches tell the same as it should.",
                    head.generation, row.generation
                );
                self.tell(Severity::Note, ": head", 0, what);
                row.generation
            }
            (Ok(head), _) => head.generation,
            (Err(damage @ Damage::Missing(_)), Some(row)) => {
                let what = format!(
                    "{damage}: a crash came before it was synced, or the device lost it. The batches say the same."
                );
                self.tell(Severity::Note, ": head", 0, what);
                row.generation
            }
            (Err(damage), Some(row)) => {
                self.tell(Severity::Harmless, ": head", 0, format!("{damage}. The batches say the same."));
                row.generation
            }
            // Without a table it is unknown whether there should be one.
            (Err(Damage::Checksum(_)), None) => {
                self.tell(Severity::Harmless, ": head", 0, "its checksum does not match".to_owned());
                return Ok(None);
            }
            (Err(_), None) => return Ok(None),
        };
        let (walk, first) = walk_segment(self.flash, self.geometry, self.pool, self.id, generation)?;
        let head = head.ok().filter(|head| head.generation == generation).or(first);
        let footer = match head {
            Some(head) => self.footer(&head)?,
            None => None,
        };
        self.batches(&walk, footer.as_deref());
        self.end(&walk, generation)?;
        Ok(Some(Used { batches: walk.batches.len() as u64, footer: footer.is_some() }))
    }

    /// Reads the footer. A segment that was open at a crash has none, and that is as it should be.
    fn footer(&mut self, life: &SegmentHead) -> Result<Option<Vec<SummaryBatch>>, ScanError> {
        let damage = match read_footer(self.flash, self.geometry, life)? {
            Ok(batches) => return Ok(Some(batches)),
            Err(damage) => damage,
        };
        let last = self.geometry.segment_blocks() - 1;
        let offset = self.offset(last);
        let bytes = self.flash.read(offset, BLOCK).map_err(|errno| ScanError::Read { offset, errno })?;
        let tail = &bytes[BLOCK - FOOTER_TAIL_BYTES..];
        let of_this_life = match decode_footer_tail(&bytes) {
            Ok((head, _)) => head.generation == life.generation,
            // Zeros, payload, or the rest of an earlier life do not carry both.
            Err(_) => tail[8..24] == self.pool.0 && tail[32..40] == life.generation.0.to_le_bytes(),
        };
        if of_this_life {
            let what = format!("{damage}. It is not needed: it repeats what the batches say.");
            self.tell(Severity::Harmless, ": footer", last, what);
        }
        Ok(None)
    }

    /// Reports what lies between the batches.
    fn batches(&mut self, walk: &Walk, footer: Option<&[SummaryBatch]>) {
        let there = |start: u32| walk.batches.iter().any(|batch| batch.start == start);
        let missing: Vec<&SummaryBatch> =
            footer.unwrap_or_default().iter().filter(|batch| !there(batch.start)).collect();
        for batch in &missing {
            let what = "its head is damaged, or was never written. The footer says the same.".to_owned();
            self.tell(Severity::Harmless, &format!(": batch {}", batch.number), batch.start, what);
        }
        for gap in &walk.gaps {
            if missing.iter().any(|batch| gap.contains(&batch.start)) {
                continue;
            }
            // Batches are numbered across all segments. Every batch before the next one here was durable only if that
            // one says so.
            let durable = walk
                .batches
                .iter()
                .find(|batch| batch.start >= gap.end)
                .is_some_and(|next| next.synced_through >= BatchNumber(next.number.0.saturating_sub(1)));
            let blocks = gap.end - gap.start;
            if durable {
                let what = format!("{blocks} blocks belong to no batch: the head of one that was durable is damaged.");
                self.tell(self.lost_batch, ": batch head", gap.start, what);
            } else {
                let what =
                    format!("{blocks} blocks belong to no batch: torn by a crash before it was synced, or damaged.");
                self.tell(Severity::Note, ": batch head", gap.start, what);
            }
        }
    }

    /// Looks for a damaged head after the last batch: the very last batch, torn or damaged.
    fn end(&mut self, walk: &Walk, generation: Generation) -> Result<(), ScanError> {
        if walk.end >= self.geometry.segment_blocks() {
            return Ok(());
        }
        let offset = self.offset(walk.end);
        let bytes = self.flash.read(offset, BLOCK).map_err(|errno| ScanError::Read { offset, errno })?;
        // Two of its three marks are enough: the third may be the damage.
        let marks = [bytes[..4] == *b"HPba", bytes[8..24] == self.pool.0, bytes[32..40] == generation.0.to_le_bytes()];
        let meant = marks.into_iter().filter(|mark| *mark).count() >= 2;
        if let (true, Err(damage)) = (meant, decode_batch(&bytes)) {
            let what = format!(
                "{damage}. It is the last of its segment: torn by a crash before it was synced, or damaged, which \
                 cannot be told apart."
            );
            self.tell(Severity::Note, ": batch head", walk.end, what);
        }
        Ok(())
    }
}
