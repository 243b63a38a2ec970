-- The load: a terminal draws from a deck (5.2.4.2), so that the mix is the standard's in the short run, too (5.2.3).
-- At its end it tells, in one line for each kind of transaction, what a program can put together again:
--
--   tpcc new-order committed=N rolled_back=N again=N latency=B:N,B:N,...
--
-- B is the whole part of the logarithm, base 1.02, of the latency in microseconds.

ffi.cdef [[
typedef struct { long seconds; long nanoseconds; } headpond_time;
int clock_gettime(int clock, headpond_time *time);
]]

local ORDER = {"new-order", "payment", "order-status", "delivery", "stock-level"}
local CARDS = {["new-order"] = 10, ["payment"] = 10, ["order-status"] = 1, ["delivery"] = 1, ["stock-level"] = 1}
local MONOTONIC = 1
local BASE = math.log(1.02)

local clock = ffi.new("headpond_time[1]")
local deck, told = {}, {}
local home, own_district, counts_from, current

local function now()
   ffi.C.clock_gettime(MONOTONIC, clock)
   return tonumber(clock[0].seconds) * 1e6 + tonumber(clock[0].nanoseconds) / 1e3
end

function thread_init()
   connection = sysbench.sql.driver():connect()
   home = sysbench.tid % sysbench.opt.warehouses + 1
   own_district = math.floor(sysbench.tid / sysbench.opt.warehouses) % DISTRICTS + 1
   counts_from = now() + sysbench.opt.discard * 1e6
   for _, kind in ipairs(ORDER) do
      told[kind] = {committed = 0, rolled_back = 0, again = 0, latency = {}}
   end
end

local function draw()
   if #deck == 0 then
      local cards = {}
      for _, kind in ipairs(ORDER) do
         for _ = 1, CARDS[kind] do
            cards[#cards + 1] = kind
         end
      end
      for at, from in ipairs(shuffled(#cards)) do
         deck[at] = cards[from]
      end
   end
   local kind = table.remove(deck)
   return {kind = kind, input = kinds[kind].draw(home, own_district), began = now(), again = 0}
end

function event()
   current = current or draw()
   local committed = kinds[current.kind].run(current.input)
   local ended = now()
   if ended >= counts_from then
      local sums = told[current.kind]
      sums.committed = sums.committed + (committed and 1 or 0)
      sums.rolled_back = sums.rolled_back + (committed and 0 or 1)
      sums.again = sums.again + current.again
      local bucket = math.floor(math.log(math.max(1, ended - current.began)) / BASE)
      sums.latency[bucket] = (sums.latency[bucket] or 0) + 1
   end
   current = nil
end

-- The database turned it down: everything of it is taken back before it is tried again.
function sysbench.hooks.before_restart_event()
   current.again = current.again + 1
   connection:query("ROLLBACK")
end

function thread_done()
   local lines = {}
   for _, kind in ipairs(ORDER) do
      local sums, latency = told[kind], {}
      for bucket, count in pairs(sums.latency) do
         latency[#latency + 1] = bucket .. ":" .. count
      end
      lines[#lines + 1] = ("tpcc %s committed=%d rolled_back=%d again=%d latency=%s\n"):format(
         kind, sums.committed, sums.rolled_back, sums.again, table.concat(latency, ","))
   end
   -- In one go: other terminals end at the same time.
   io.stdout:write(table.concat(lines))
   io.stdout:flush()
   connection:disconnect()
end
