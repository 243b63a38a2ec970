-- Random input (2.1.5, 2.1.6, 4.3.2).

local ffi = require("ffi")

-- The constant of NURand: one for each use. Between loading and running the one for last names differs by 100, which
-- lies where it has to (2.1.6.1).
local NAME_LOADING, NAME_RUNNING, CUSTOMER_CONSTANT, ITEM_CONSTANT = 59, 159, 259, 7911

local function uniform(low, high)
   return sysbench.rand.uniform(low, high)
end

local function chance(percent)
   return uniform(1, 100) <= percent
end

local function nurand(a, constant, low, high)
   return (bit.bor(uniform(0, a), uniform(low, high)) + constant) % (high - low + 1) + low
end

local ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
local characters = ffi.new("char[?]", 512)

local function text_of(alphabet, shortest, longest)
   local length = uniform(shortest, longest)
   for at = 0, length - 1 do
      characters[at] = alphabet:byte(uniform(1, #alphabet))
   end
   return ffi.string(characters, length)
end

local function letters(shortest, longest)
   return text_of(ALPHANUMERIC, shortest, longest)
end

local function digits(count)
   return text_of("0123456789", count, count)
end

-- Of ten in a hundred a part is "ORIGINAL" (4.3.3.1).
local function data()
   local text = letters(26, 50)
   if not chance(10) then
      return text
   end
   local at = uniform(0, #text - 8)
   return text:sub(1, at) .. "ORIGINAL" .. text:sub(at + 9)
end

local function zip()
   return digits(4) .. "11111"
end

local SYLLABLES = {[0] = "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

local function last_name(number)
   return SYLLABLES[math.floor(number / 100)] .. SYLLABLES[math.floor(number / 10) % 10] .. SYLLABLES[number % 10]
end

-- With fewer customers than names, only the names that somebody has.
local function some_last_name(constant)
   return last_name(nurand(255, constant, 0, math.min(1000, sysbench.opt.customers) - 1))
end

local function shuffled(count)
   local order = {}
   for at = 1, count do
      local other = uniform(1, at)
      order[at] = order[other]
      order[other] = at
   end
   return order
end
