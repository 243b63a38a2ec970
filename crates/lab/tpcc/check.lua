-- The consistency conditions (3.3.2), each as a question whose answer is how often it does not hold. Condition 11 is
-- of the tables as they begin, and deliveries end it.

local CONDITIONS = {
   {1, "SELECT COUNT(*) FROM warehouse WHERE w_ytd <> (SELECT SUM(d_ytd) FROM district WHERE d_w_id = w_id)"},
   {2, "SELECT COUNT(*) FROM district WHERE d_next_o_id - 1 <>" ..
         " (SELECT MAX(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)" ..
         " OR d_next_o_id - 1 <> (SELECT MAX(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)"},
   {3, "SELECT COUNT(*) FROM (SELECT MAX(no_o_id) - MIN(no_o_id) + 1 AS span, COUNT(*) AS rows_there" ..
         " FROM new_order GROUP BY no_w_id, no_d_id) AS waiting WHERE span <> rows_there"},
   {4, "SELECT COUNT(*) FROM district WHERE (SELECT SUM(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)" ..
         " <> (SELECT COUNT(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)"},
   {5, "SELECT COUNT(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id" ..
         " WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)"},
   {6, "SELECT COUNT(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS rows_there" ..
         " FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) AS lines_of" ..
         " ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id" ..
         " WHERE rows_there IS NULL OR rows_there <> o_ol_cnt"},
   {7, "SELECT COUNT(*) FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id" ..
         " WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)"},
   {8, "SELECT COUNT(*) FROM warehouse LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id)" ..
         " AS payments ON h_w_id = w_id WHERE paid IS NULL OR w_ytd <> paid"},
   {9, "SELECT COUNT(*) FROM district LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid FROM history" ..
         " GROUP BY h_w_id, h_d_id) AS payments ON h_w_id = d_w_id AND h_d_id = d_id WHERE paid IS NULL OR d_ytd <> paid"},
   {10, "SELECT COUNT(*) FROM customer" ..
         " LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS bought FROM orders" ..
         " JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id" ..
         " WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) AS deliveries" ..
         " ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id" ..
         " LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history" ..
         " GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS payments" ..
         " ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id" ..
         " WHERE c_balance <> COALESCE(bought, 0) - COALESCE(paid, 0)"},
   {12, "SELECT COUNT(*) FROM customer" ..
         " LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS bought FROM orders" ..
         " JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id" ..
         " WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) AS deliveries" ..
         " ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id" ..
         " WHERE c_balance + c_ytd_payment <> COALESCE(bought, 0)"}
}

local function check()
   local connection = sysbench.sql.driver():connect()
   for _, condition in ipairs(CONDITIONS) do
      local number, question = unpack(condition)
      local broken = tonumber((connection:query_row(question)))
      print(("tpcc condition 3.3.2.%d broken=%d"):format(number, broken))
   end
end

sysbench.cmdline.commands = {
   tables = {make_tables},
   prepare = {prepare, sysbench.cmdline.PARALLEL_COMMAND},
   check = {check}
}
