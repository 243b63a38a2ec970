-- What the tables begin with (4.3.3.1).

local NOW = "CURRENT_TIMESTAMP"

local function quoted(text)
   return "'" .. text .. "'"
end

local function address()
   return ("'%s','%s','%s','%s','%s'"):format(letters(10, 20), letters(10, 20), letters(10, 20),
                                                text_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 2, 2), zip())
end

local function tax()
   return uniform(0, 2000) / 10000
end

local function fill(connection, into, count, row)
   connection:bulk_insert_init("INSERT INTO " .. into .. " VALUES")
   for number = 1, count do
      connection:bulk_insert_next("(" .. row(number) .. ")")
   end
   connection:bulk_insert_done()
end

local function fill_items(connection)
   fill(connection, "item", sysbench.opt.items, function(number)
      return ("%d,%d,'%s',%.2f,'%s'"):format(number, uniform(1, 10000), letters(14, 24), uniform(100, 10000) / 100,
                                             data())
   end)
end

local function fill_stock(connection, warehouse)
   fill(connection, "stock", sysbench.opt.items, function(number)
      local districts = {}
      for district = 1, DISTRICTS do
         districts[district] = quoted(letters(24, 24))
      end
      return ("%d,%d,%d,%s,0,0,0,'%s'"):format(number, warehouse, uniform(10, 100), table.concat(districts, ","), data())
   end)
end

local function fill_customers(connection, warehouse, district)
   fill(connection, "customer", sysbench.opt.customers, function(number)
      local name = number <= 1000 and last_name(number - 1) or some_last_name(NAME_LOADING)
      return ("%d,%d,%d,'%s','OE','%s',%s,'%s',%s,'%s',50000,%.4f,-10,10,1,0,'%s'"):format(
         number, district, warehouse, letters(8, 16), name, address(), digits(16), NOW, chance(10) and "BC" or "GC",
         uniform(0, 5000) / 10000, letters(300, 500))
   end)
   fill(connection, "history", sysbench.opt.customers, function(number)
      return ("%d,%d,%d,%d,%d,%s,10,'%s'"):format(number, district, warehouse, district, warehouse, NOW, letters(12, 24))
   end)
end

-- Of the orders that a district begins with, the last three in ten wait for delivery.
local function fill_orders(connection, warehouse, district)
   local count = sysbench.opt.customers
   local delivered = count * 7 / 10
   local customers, lines = shuffled(count), {}
   fill(connection, "orders", count, function(number)
      lines[number] = uniform(5, 15)
      local carrier = number <= delivered and uniform(1, 10) or "NULL"
      return ("%d,%d,%d,%d,%s,%s,%d,1"):format(number, district, warehouse, customers[number], NOW, carrier, lines[number])
   end)
   connection:bulk_insert_init("INSERT INTO order_line VALUES")
   for number = 1, count do
      for line = 1, lines[number] do
         local waits = number > delivered
         local at, amount = waits and "NULL" or NOW, waits and uniform(1, 999999) / 100 or 0
         connection:bulk_insert_next(("(%d,%d,%d,%d,%d,%d,%s,5,%.2f,'%s')"):format(
            number, district, warehouse, line, uniform(1, sysbench.opt.items), warehouse, at, amount, letters(24, 24)))
      end
   end
   connection:bulk_insert_done()
   local first = math.floor(delivered)
   fill(connection, "new_order", count - first, function(number)
      return ("%d,%d,%d"):format(first + number, district, warehouse)
   end)
end

local function fill_warehouse(connection, warehouse)
   -- What each customer has paid before (the history's rows) is what its district and warehouse have taken.
   local taken = sysbench.opt.customers * 10
   fill(connection, "warehouse", 1, function()
      return ("%d,'%s',%s,%.4f,%d"):format(warehouse, letters(6, 10), address(), tax(), taken * DISTRICTS)
   end)
   fill(connection, "district", DISTRICTS, function(district)
      return ("%d,%d,'%s',%s,%.4f,%d,%d"):format(district, warehouse, letters(6, 10), address(), tax(), taken,
                                                  sysbench.opt.customers + 1)
   end)
   fill_stock(connection, warehouse)
   for district = 1, DISTRICTS do
      fill_customers(connection, warehouse, district)
      fill_orders(connection, warehouse, district)
   end
end

local function prepare()
   local connection = sysbench.sql.driver():connect()
   local own = sysbench.tid % sysbench.opt.threads
   if own == 0 then
      fill_items(connection)
   end
   for warehouse = own + 1, sysbench.opt.warehouses, sysbench.opt.threads do
      fill_warehouse(connection, warehouse)
   end
end
