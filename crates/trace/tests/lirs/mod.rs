//! LIRS (Jiang and Zhang, 2002), to compare with: the best known policy for loops.
//!
//! It holds the blocks with the shortest times between their last two uses. The others have a hundredth of the cache.
//! Its memory of names is not bounded here.

use headpond_trace::LoadedTrace;

#[derive(Clone, Default)]
struct Block {
    /// It is one of those held for their short pauses.
    held: bool,
    /// Where it is in the stack, if it was used since the oldest use of a held block.
    in_stack: Option<usize>,
    /// Where it is in the queue, if it is in the cache and not held.
    in_queue: Option<usize>,
}

struct Lirs {
    blocks: Vec<Block>,
    /// Blocks by use. An entry counts if its block points to it. Below `oldest` none does; there, a held block is.
    stack: Vec<usize>,
    oldest: usize,
    held: usize,
    held_most: usize,
    /// Blocks that are in the cache and not held, in the order in which they go.
    queue: Vec<usize>,
    next: usize,
    queued: usize,
    queued_most: usize,
}

/// References that miss in a cache of this many blocks.
pub fn misses(load: &LoadedTrace, size: usize) -> usize {
    let queued_most = (size / 100).max(1);
    let mut lirs = Lirs {
        blocks: vec![Block::default(); load.footprint()],
        stack: Vec::new(),
        oldest: 0,
        held: 0,
        held_most: size - queued_most,
        queue: Vec::new(),
        next: 0,
        queued: 0,
        queued_most,
    };
    load.references().iter().filter(|reference| !lirs.hits(reference.block() as usize)).count()
}

impl Lirs {
    /// Uses a block. Returns whether it was in the cache.
    fn hits(&mut self, number: usize) -> bool {
        let block = &mut self.blocks[number];
        let was_queued = block.in_queue.take().is_some();
        let was_in_stack = block.in_stack.replace(self.stack.len()).is_some();
        let hit = block.held || was_queued;
        self.stack.push(number);
        self.queued -= usize::from(was_queued);
        if block.held {
            self.drop_from_stack();
        } else if was_in_stack || !hit && self.held < self.held_most {
            block.held = true;
            self.held += 1;
            if self.held > self.held_most {
                let oldest = self.stack[self.oldest];
                self.blocks[oldest].held = false;
                self.held -= 1;
                self.enqueue(oldest);
                self.drop_from_stack();
            }
        } else {
            self.enqueue(number);
        }
        hit
    }

    fn enqueue(&mut self, number: usize) {
        self.blocks[number].in_queue = Some(self.queue.len());
        self.queue.push(number);
        self.queued += 1;
        while self.queued > self.queued_most {
            let block = &mut self.blocks[self.queue[self.next]];
            self.queued -= usize::from(block.in_queue.take_if(|at| *at == self.next).is_some());
            self.next += 1;
        }
    }

    /// Drops what is older than the oldest held block.
    fn drop_from_stack(&mut self) {
        loop {
            let block = &mut self.blocks[self.stack[self.oldest]];
            if block.in_stack == Some(self.oldest) {
                if block.held {
                    return;
                }
                block.in_stack = None;
            }
            self.oldest += 1;
        }
    }
}
