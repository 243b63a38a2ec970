-- A load by the rules of TPC-C (standard specification, revision 5.11, whose clauses are named), for sysbench on
-- MariaDB, MySQL and PostgreSQL. These files are put together in the order: options, random, tables, rows,
-- transactions, told, check.
--
--   sysbench tpcc.lua ... tables     makes the tables
--   sysbench tpcc.lua ... prepare    fills them, a warehouse at a time in each thread
--   sysbench tpcc.lua ... run        the load
--   sysbench tpcc.lua ... check      the consistency conditions
--
-- What differs from the standard, so that its figures are no tpmC and may not be called that: no thinking or keying
-- time (5.2.5), a delivery is carried out while its terminal waits instead of being queued (2.7.2), no referential
-- constraints are declared, and terminals are sysbench's threads.

if sysbench.cmdline.command == nil then
   error("which command? tables, prepare, run or check")
end

sysbench.cmdline.options = {
   warehouses = {"Warehouses", 1},
   items = {"Items, and rows of stock of each warehouse; the standard has 100,000", 100000},
   customers = {"Customers of each district, and orders that it begins with; the standard has 3,000", 3000},
   discard = {"Seconds at the start whose transactions are not told", 0}
}

local DISTRICTS = 10
