-- The five transactions. Each is drawn with its input first, so that one that the database turned down (a deadlock)
-- is tried again as it was.

local connection

local function row(text, ...)
   return connection:query_row(text:format(...))
end

local function execute(text, ...)
   connection:query(text:format(...))
end

local function some_customer()
   return nurand(1023, CUSTOMER_CONSTANT, 1, sysbench.opt.customers)
end

local function other_warehouse(home)
   local other = uniform(1, sysbench.opt.warehouses - 1)
   return other < home and other or other + 1
end

-- Sixty of a hundred ask by name (2.5.1.2, 2.6.1.2).
local function customer_or_name()
   if chance(60) then
      return nil, some_last_name(NAME_RUNNING)
   end
   return some_customer(), nil
end

-- Of those with that name the one in the middle by first name (2.5.2.2).
local function number_of(warehouse, district, name)
   local rows = connection:query(("SELECT c_id FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_last = '%s'" ..
                                    " ORDER BY c_first"):format(warehouse, district, name))
   local middle, number = math.ceil(rows.nrows / 2), nil
   for _ = 1, rows.nrows do
      local fetched = rows:fetch_row()
      middle = middle - 1
      if middle == 0 then
         number = tonumber(fetched[1])
      end
   end
   return assert(number, "no customer is called " .. name)
end

local kinds = {}

-- 2.4
kinds["new-order"] = {
   draw = function(home)
      local input = {warehouse = home, district = uniform(1, DISTRICTS), customer = some_customer(), lines = {}}
      -- One in a hundred names an item that there is not, and is rolled back (2.4.1.4).
      local count, wrong = uniform(5, 15), uniform(1, 100) == 1
      for number = 1, count do
         local item = nurand(8191, ITEM_CONSTANT, 1, sysbench.opt.items)
         if wrong and number == count then
            item = sysbench.opt.items + 1
         end
         local remote = sysbench.opt.warehouses > 1 and uniform(1, 100) == 1
         local from = remote and other_warehouse(home) or home
         input.lines[number] = {item = item, from = from, quantity = uniform(1, 10)}
      end
      return input
   end,
   run = function(input)
      local w, d, c = input.warehouse, input.district, input.customer
      local all_local = 1
      for _, line in ipairs(input.lines) do
         if line.from ~= w then
            all_local = 0
         end
      end
      execute("BEGIN")
      row("SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse" ..
             " WHERE w_id = %d AND c_w_id = %d AND c_d_id = %d AND c_id = %d", w, w, d, c)
      local order = tonumber((row("SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = %d AND d_id = %d FOR UPDATE",
                                  w, d)))
      execute("UPDATE district SET d_next_o_id = %d WHERE d_w_id = %d AND d_id = %d", order + 1, w, d)
      execute("INSERT INTO orders VALUES (%d,%d,%d,%d,%s,NULL,%d,%d)", order, d, w, c, NOW, #input.lines, all_local)
      execute("INSERT INTO new_order VALUES (%d,%d,%d)", order, d, w)
      for number, line in ipairs(input.lines) do
         local price = row("SELECT i_price, i_name, i_data FROM item WHERE i_id = %d", line.item)
         if price == nil then
            execute("ROLLBACK")
            return false
         end
         local quantity, information = row("SELECT s_quantity, s_dist_%02d, s_data FROM stock" ..
                                              " WHERE s_i_id = %d AND s_w_id = %d FOR UPDATE", d, line.item, line.from)
         local left = tonumber(quantity) - line.quantity
         if left < 10 then
            left = left + 91
         end
         execute("UPDATE stock SET s_quantity = %d, s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1," ..
                    " s_remote_cnt = s_remote_cnt + %d WHERE s_i_id = %d AND s_w_id = %d",
                 left, line.quantity, line.from == w and 0 or 1, line.item, line.from)
         execute("INSERT INTO order_line VALUES (%d,%d,%d,%d,%d,%d,NULL,%d,%.2f,'%s')", order, d, w, number, line.item,
                 line.from, line.quantity, line.quantity * tonumber(price), information)
      end
      execute("COMMIT")
      return true
   end
}

-- 2.5
kinds["payment"] = {
   draw = function(home)
      local input = {warehouse = home, district = uniform(1, DISTRICTS), amount = uniform(100, 500000) / 100}
      -- Fifteen of a hundred pay elsewhere (2.5.1.2).
      local remote = sysbench.opt.warehouses > 1 and not chance(85)
      input.customer_warehouse = remote and other_warehouse(home) or home
      input.customer_district = remote and uniform(1, DISTRICTS) or input.district
      input.customer, input.name = customer_or_name()
      return input
   end,
   run = function(input)
      local w, d, cw, cd = input.warehouse, input.district, input.customer_warehouse, input.customer_district
      execute("BEGIN")
      execute("UPDATE warehouse SET w_ytd = w_ytd + %.2f WHERE w_id = %d", input.amount, w)
      local w_name = row("SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = %d", w)
      execute("UPDATE district SET d_ytd = d_ytd + %.2f WHERE d_w_id = %d AND d_id = %d", input.amount, w, d)
      local d_name = row("SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district" ..
                            " WHERE d_w_id = %d AND d_id = %d", w, d)
      local c = input.customer or number_of(cw, cd, input.name)
      local credit, known = row("SELECT c_credit, c_data, c_first, c_middle, c_last, c_phone, c_since, c_credit_lim," ..
                                   " c_discount, c_balance FROM customer" ..
                                   " WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d FOR UPDATE", cw, cd, c)
      local noted = ""
      if credit == "BC" then
         local data = ("%d %d %d %d %d %.2f | %s"):format(c, cd, cw, d, w, input.amount, known):sub(1, 500)
         noted = (", c_data = '%s'"):format(data)
      end
      execute("UPDATE customer SET c_balance = c_balance - %.2f, c_ytd_payment = c_ytd_payment + %.2f," ..
                 " c_payment_cnt = c_payment_cnt + 1%s WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d",
              input.amount, input.amount, noted, cw, cd, c)
      execute("INSERT INTO history VALUES (%d,%d,%d,%d,%d,%s,%.2f,'%s    %s')", c, cd, cw, d, w, NOW, input.amount,
              w_name, d_name)
      execute("COMMIT")
      return true
   end
}

-- 2.6
kinds["order-status"] = {
   draw = function(home)
      local input = {warehouse = home, district = uniform(1, DISTRICTS)}
      input.customer, input.name = customer_or_name()
      return input
   end,
   run = function(input)
      local w, d = input.warehouse, input.district
      execute("BEGIN")
      local c = input.customer or number_of(w, d, input.name)
      row("SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d",
          w, d, c)
      local order = row("SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = %d AND o_d_id = %d" ..
                           " AND o_c_id = %d ORDER BY o_id DESC LIMIT 1", w, d, c)
      execute("SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line" ..
                 " WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %s", w, d, order)
      execute("COMMIT")
      return true
   end
}

-- 2.7
kinds["delivery"] = {
   draw = function(home)
      return {warehouse = home, carrier = uniform(1, 10)}
   end,
   run = function(input)
      local w = input.warehouse
      execute("BEGIN")
      for d = 1, DISTRICTS do
         local order = row("SELECT no_o_id FROM new_order WHERE no_w_id = %d AND no_d_id = %d" ..
                              " ORDER BY no_o_id LIMIT 1 FOR UPDATE", w, d)
         -- A district with nothing to deliver is left out (2.7.4.2).
         if order ~= nil then
            execute("DELETE FROM new_order WHERE no_w_id = %d AND no_d_id = %d AND no_o_id = %s", w, d, order)
            -- Locked as well: the order may be younger than what a plain read in this transaction sees.
            local c = row("SELECT o_c_id FROM orders WHERE o_w_id = %d AND o_d_id = %d AND o_id = %s FOR UPDATE", w, d,
                          order)
            execute("UPDATE orders SET o_carrier_id = %d WHERE o_w_id = %d AND o_d_id = %d AND o_id = %s",
                    input.carrier, w, d, order)
            execute("UPDATE order_line SET ol_delivery_d = %s WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %s",
                    NOW, w, d, order)
            local amount = row("SELECT SUM(ol_amount) FROM order_line" ..
                                  " WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %s", w, d, order)
            execute("UPDATE customer SET c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1" ..
                       " WHERE c_w_id = %d AND c_d_id = %d AND c_id = %s", amount, w, d, c)
         end
      end
      execute("COMMIT")
      return true
   end
}

-- 2.8. Its district is its terminal's own (2.8.1.1).
kinds["stock-level"] = {
   draw = function(home, own_district)
      return {warehouse = home, district = own_district, threshold = uniform(10, 20)}
   end,
   run = function(input)
      local w, d = input.warehouse, input.district
      execute("BEGIN")
      local next_order = tonumber((row("SELECT d_next_o_id FROM district WHERE d_w_id = %d AND d_id = %d", w, d)))
      row("SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = %d AND ol_d_id = %d" ..
             " AND ol_o_id < %d AND ol_o_id >= %d AND s_w_id = %d AND s_i_id = ol_i_id AND s_quantity < %d",
          w, d, next_order, next_order - 20, w, input.threshold)
      execute("COMMIT")
      return true
   end
}
