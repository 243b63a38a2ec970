-- The nine tables (1.3), each with its primary key (1.4), and the two other ways in that the transactions need.

local function make_tables()
   local driver = sysbench.sql.driver()
   local connection = driver:connect()
   local time = driver:name() == "pgsql" and "TIMESTAMP" or "DATETIME"
   local place = "street_1 VARCHAR(20), %s_street_2 VARCHAR(20), %s_city VARCHAR(20), %s_state CHAR(2), %s_zip CHAR(9)"
   local function address(prefix)
      return prefix .. "_" .. place:gsub("%%s", prefix)
   end
   local tables = {
      "warehouse (w_id INTEGER, w_name VARCHAR(10), " .. address("w") ..
         ", w_tax DECIMAL(4,4), w_ytd DECIMAL(12,2), PRIMARY KEY (w_id))",
      "district (d_id SMALLINT, d_w_id INTEGER, d_name VARCHAR(10), " .. address("d") ..
         ", d_tax DECIMAL(4,4), d_ytd DECIMAL(12,2), d_next_o_id INTEGER, PRIMARY KEY (d_w_id, d_id))",
      "customer (c_id INTEGER, c_d_id SMALLINT, c_w_id INTEGER, c_first VARCHAR(16), c_middle CHAR(2)," ..
         " c_last VARCHAR(16), " .. address("c") .. ", c_phone CHAR(16), c_since " .. time .. ", c_credit CHAR(2)," ..
         " c_credit_lim DECIMAL(12,2), c_discount DECIMAL(4,4), c_balance DECIMAL(12,2)," ..
         " c_ytd_payment DECIMAL(12,2), c_payment_cnt INTEGER, c_delivery_cnt INTEGER, c_data VARCHAR(500)," ..
         " PRIMARY KEY (c_w_id, c_d_id, c_id))",
      "history (h_c_id INTEGER, h_c_d_id SMALLINT, h_c_w_id INTEGER, h_d_id SMALLINT, h_w_id INTEGER, h_date " .. time ..
         ", h_amount DECIMAL(6,2), h_data VARCHAR(24))",
      "orders (o_id INTEGER, o_d_id SMALLINT, o_w_id INTEGER, o_c_id INTEGER, o_entry_d " .. time ..
         ", o_carrier_id SMALLINT, o_ol_cnt SMALLINT, o_all_local SMALLINT, PRIMARY KEY (o_w_id, o_d_id, o_id))",
      "new_order (no_o_id INTEGER, no_d_id SMALLINT, no_w_id INTEGER, PRIMARY KEY (no_w_id, no_d_id, no_o_id))",
      "item (i_id INTEGER, i_im_id INTEGER, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50)," ..
         " PRIMARY KEY (i_id))",
      "stock (s_i_id INTEGER, s_w_id INTEGER, s_quantity SMALLINT, s_dist_01 CHAR(24), s_dist_02 CHAR(24)," ..
         " s_dist_03 CHAR(24), s_dist_04 CHAR(24), s_dist_05 CHAR(24), s_dist_06 CHAR(24), s_dist_07 CHAR(24)," ..
         " s_dist_08 CHAR(24), s_dist_09 CHAR(24), s_dist_10 CHAR(24), s_ytd DECIMAL(8,0), s_order_cnt INTEGER," ..
         " s_remote_cnt INTEGER, s_data VARCHAR(50), PRIMARY KEY (s_w_id, s_i_id))",
      "order_line (ol_o_id INTEGER, ol_d_id SMALLINT, ol_w_id INTEGER, ol_number SMALLINT, ol_i_id INTEGER," ..
         " ol_supply_w_id INTEGER, ol_delivery_d " .. time .. ", ol_quantity SMALLINT, ol_amount DECIMAL(6,2)," ..
         " ol_dist_info CHAR(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number))"
   }
   for _, columns in ipairs(tables) do
      connection:query("CREATE TABLE " .. columns)
   end
   connection:query("CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)")
   connection:query("CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)")
end
