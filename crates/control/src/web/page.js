'use strict';
// The token stays out of the address, and with it out of bookmarks and pictures of the screen.
if (location.search) history.replaceState(null, '', location.pathname);

const $ = id => document.getElementById(id);
const SVG = 'http:' + '//www.w3.org/2000/svg';

/** An element with attributes and children. Texts are never read as HTML. */
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value != null) made.setAttribute(key, value);
  made.append(...children.filter(child => child != null));
  return made;
}
function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function fill(id, ...children) { $(id).replaceChildren(...children.filter(child => child != null)); }

// Numbers as people read them: units as in `headpond status`.
function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  while (n >= 1024 && at < 5) { n /= 1024; at++; }
  return short(n) + ' ' + units[at];
}
function short(n) { return n >= 100 || Number.isInteger(n) ? Math.round(n).toString() : n >= 10 ? n.toFixed(1) : n.toFixed(2); }
function count(n) {
  const size = Math.abs(n);
  for (const [unit, word] of [[1e9, ' G'], [1e6, ' M'], [1e4, ' k']]) if (size >= unit) return short(n / (unit === 1e4 ? 1e3 : unit)) + word;
  return size < 10 && !Number.isInteger(n) ? n.toFixed(1) : Math.round(n).toString();
}
function some(n, word) { return `${count(n)} ${word}${n === 1 ? '' : 's'}`; }
function percent(share) { return (100 * share).toFixed(1) + ' %'; }
function nanos(n) {
  if (n >= 1e9) return short(n / 1e9) + ' s';
  if (n >= 1e6) return short(n / 1e6) + ' ms';
  return n >= 1e3 ? short(n / 1e3) + ' µs' : Math.round(n) + ' ns';
}
function duration(seconds) {
  if (seconds < 1) return seconds > 0 ? 'under 1 s' : '0 s';
  const s = Math.round(seconds);
  if (s < 120) return s + ' s';
  if (s < 7200) return Math.round(s / 60) + ' min';
  return s < 172800 ? short(s / 3600) + ' h' : short(s / 86400) + ' d';
}
const clock = ms => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const stamp = ms => new Date(ms).toLocaleString([], { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });

// What is known. `rows` holds, for each step, rows by their time.
const known = { now: null, before: null, heard: 0, skew: 0, rows: { 10: new Map(), 300: new Map() }, columns: {}, events: [] };
const RANGES = [['15 minutes', 900, 10], ['hour', 3600, 10], ['4 hours', 14400, 10], ['day', 86400, 300], ['week', 604800, 300]];
const remembered = (name, otherwise) => { try { return localStorage.getItem('headpond-' + name) || otherwise; } catch { return otherwise; } };
const remember = (name, value) => { try { localStorage.setItem('headpond-' + name, value); } catch { /* a browser that keeps nothing */ } };
let range = RANGES.find(one => one[0] === remembered('range', 'hour')) || RANGES[1];
let trouble = null;

/** Seconds since 1970 by the daemon's clock: this machine's may be wrong. */
const seconds = () => (Date.now() + known.skew) / 1000;

async function ask(path) {
  const ended = new AbortController();
  const timer = setTimeout(() => ended.abort(), 5000);
  try {
    const answer = await fetch(path, { signal: ended.signal, cache: 'no-store' });
    if (answer.status === 401) throw Object.assign(new Error('token'), { token: true });
    if (!answer.ok) throw new Error(answer.status + ' ' + answer.statusText);
    return await answer.json();
  } finally { clearTimeout(timer); }
}

async function learnRows(step) {
  const rows = known.rows[step];
  const last = Math.max(0, ...rows.keys());
  const said = await ask(`/api/history?step=${step}` + (last ? `&since=${last}` : ''));
  said.columns.forEach((name, at) => { known.columns[name] = at; });
  for (const row of said.rows) rows.set(row[0], row);
  const oldest = seconds() - (step === 10 ? 15000 : 700000);
  for (const time of rows.keys()) if (time < oldest) rows.delete(time);
}

let turns = 0, waiting = 0;
async function turn() {
  waiting = 0;
  try {
    const now = await ask('/api/now');
    known.before = known.now && known.now.status.pid === now.status.pid ? known.now : null;
    known.now = now;
    known.heard = Date.now();
    known.skew = now.time_ms - known.heard;
    trouble = null;
    if (turns++ % 5 === 0) {
      await learnRows(10);
      await learnRows(300);
      known.events = (await ask('/api/events')).events;
      drawCharts();
      drawEvents();
    }
    drawNow();
    document.body.dataset.turns = turns;
  } catch (error) {
    turns = 0;
    trouble = error;
  }
  drawTrouble();
  // A page that nobody looks at asks seldom.
  waiting = setTimeout(turn, document.hidden ? 30000 : trouble ? 3000 : 2000);
}

function drawTrouble() {
  const gone = trouble !== null;
  document.body.classList.toggle('gone', gone);
  const now = known.now, alerts = [];
  if (gone) {
    const then = known.heard ? ` What you see is from ${clock(known.heard)}, not from now.` : '';
    alerts.push(['bad', trouble.token ? 'The daemon asks for its token again.' + then : 'The daemon does not answer.' + then + ' The mount may have ended: headpond status']);
    document.title = '⚠ no answer · headpond';
    $('state').textContent = 'no answer';
    $('state').className = 'badge bad';
    if (trouble.token) alerts[0].push(el('a', { href: '/' }, ' Show the token'));
  }
  if (now) {
    const s = now.status, m = now.metrics;
    if (s.flash_failed) alerts.push(['bad', 'The flash has failed: the pool caches nothing more' + (s.claim_lost ? '.' : ', and writes go to the origin.')]);
    if (now.pool.state === 'DEGRADED') alerts.push(['warn', `The pool is degraded: ${now.pool.exposed_bytes ? `${bytes(now.pool.exposed_bytes)} of dirty data have one copy.` : 'a device is out of it.'} ${now.pool.actions.join(' ')}`]);
    if (s.claim_lost) alerts.push(['bad', s.claim_lost]);
    if (m.lease_waiting) alerts.push(['bad', 'The lease is not renewed, so the mount stands still, and programs wait. Does the registry answer?']);
    if (s.lost_blocks) alerts.push(['bad', `${bytes(m.lost_bytes_total)} of dirty data could not be read back from flash.`]);
    if (s.origin_silent_seconds) alerts.push(['warn', `The origin has not answered for ${duration(s.origin_silent_seconds)}; the pool still serves what it has.`]);
    if (m.failing_files) alerts.push(['warn', `${some(m.failing_files, 'file')} could not be written to the origin at the last try.`]);
    if (now.history.kept === 'memory') alerts.push(['warn', 'The history ends with this daemon: the pool was made without room for it, or the device that had it left.']);
    if (now.history.kept === 'memory-after-error') alerts.push(['warn', 'The history ends with this daemon: the pool could not be written.']);
  }
  // Said again only when it changes, so that a screen reader does not repeat it.
  const text = alerts.map(alert => alert[1]).join('\n');
  if ($('alerts').dataset.said !== text) {
    $('alerts').dataset.said = text;
    fill('alerts', ...alerts.map(([kind, words, more]) => el('p', { class: kind }, words, more)));
  }
  $('age').textContent = known.heard ? `as of ${clock(known.heard)}` : '';
}

/** A figure: `value` is what `headpond status --json` says, for those who compare. */
function tile(label, big, small, { figure, value, mood } = {}) {
  return el('div', { class: 'tile' }, el('dt', {}, label),
    el('dd', { class: 'big ' + (mood || ''), 'data-figure': figure, 'data-value': value }, big),
    ...[].concat(small).map(line => el('dd', { class: 'note' }, line)));
}
function figure(name, value, words) { return el('span', { 'data-figure': name, 'data-value': value }, words); }

function drawNow() {
  const now = known.now, s = now.status, m = now.metrics, latency = now.latency;
  $('mount').textContent = s.mountpoint;
  document.title = `${s.mountpoint} · headpond`;
  $('state').textContent = `${s.mode}, ${s.state}`;
  $('state').className = 'badge' + (s.flash_failed || s.claim_lost ? ' bad' : s.state === 'running' ? '' : ' warn');
  $('places').textContent = `${s.origin} on ${s.flash} (${bytes(s.size_bytes)}, ${s.backend}) · up ${duration(s.uptime_seconds)}`
    + (s.takeovers ? `, after ${some(s.takeovers, 'other worker')} of this mount` : '');
  $('version').textContent = `headpond ${s.version}, process ${s.pid}`;

  const lately = bucket(recent(300));
  const ratio = lately && ratioOf(lately);
  const passed = known.before ? (now.time_ms - known.before.time_ms) / 1000 : 0;
  const rate = name => passed > 0 ? Math.max(0, m[name] - known.before.metrics[name]) / passed : 0;
  const requests = rate('reads_total') + rate('writes_total') + rate('syncs_total');
  const origin = rate('origin_reads_total') + rate('origin_writes_total') + rate('origin_syncs_total');
  const age = m.oldest_dirty_age_seconds;
  const late = m.flush_period_seconds > 0 && age > 2 * m.flush_period_seconds + 60;
  const full = m.dirty_limit_bytes > 0 && s.dirty_bytes > .9 * m.dirty_limit_bytes;
  const by = { 'nothing-dirty': 'nothing is dirty', 'running': 'at the pace of the flush that runs', 'fastest-of-week': `at ${bytes(now.flush.fastest_bytes_per_second)}/s, the fastest of the week`, 'unknown': 'no destage yet to tell by' }[now.flush.by];
  const longest = Math.max(0, ...Object.values(latency).map(one => one.max_seconds));
  const saved = now.saved;
  const p99 = lately && Math.max(lately.read_p99_ns, lately.write_p99_ns, lately.sync_p99_ns);
  fill('tiles',
    tile('Hit ratio, 5 minutes', ratio == null ? '–' : percent(ratio), [figure('hit_ratio', s.hit_ratio, `${percent(s.hit_ratio)} since the start`)]),
    tile('Requests', passed ? `${count(requests)}/s` : '–', [`${count(origin)} a second at the origin`, `${m.requests_under_way} under way`]),
    tile('p99, 5 minutes', p99 ? nanos(p99) : '–',
      [`longest since the start ${nanos(longest * 1e9)}`, `${count(m.stalls_total)} writes waited for room`]),
    tile('Dirty data', bytes(s.dirty_bytes), [`in ${some(s.dirty_files, 'file')}`, age > 0 ? `the oldest ${duration(age)}` : 'nothing waits'],
      { figure: 'dirty_bytes', value: s.dirty_bytes, mood: late || full ? 'warn' : '' }),
    tile('A flush would take', now.flush.seconds == null ? '?' : duration(now.flush.seconds), by),
    tile('Origin I/Os saved', count(saved.saved), saved.requests ? `of ${count(saved.requests)} requests since the start` : 'no requests yet',
      { figure: 'saved', value: saved.saved }));

  const dirty = s.dirty_bytes, clean = s.cached_bytes, stored = s.packed_bytes ? s.stored_bytes : s.used_bytes;
  const free = Math.max(0, s.capacity_bytes - stored);
  const parts = [['Dirty', dirty, 's-origin', 'dirty'], ['Clean', clean, 's-flash', 'cached_bytes'], ['Free', free, 's-free', 'free']];
  const share = s.capacity_bytes ? stored / s.capacity_bytes : 0;
  fill('pool-bar', ...parts.slice(0, 2).map(([, value, kind]) => {
    const part = el('span', { class: kind });
    part.style.width = `${100 * Math.min(1, share) * value / Math.max(1, dirty + clean)}%`;
    return part;
  }));
  $('pool-bar').setAttribute('aria-label', parts.map(([label, value]) => `${label} ${bytes(value)}`).join(', '));
  fill('pool-legend', ...parts.map(([label, value, kind, name]) => el('li', { class: kind }, el('i'), el('em', {}, label + ' '),
    el('b', { 'data-figure': name, 'data-value': value }, bytes(value)))));
  $('pool-note').replaceChildren(figure('used_bytes', s.used_bytes, `${bytes(stored)} of ${bytes(s.capacity_bytes)} in use`),
    s.packed_bytes ? `, compressed from ${bytes(s.used_bytes)}` : '', ` · ${some(m.known_files, 'file')} known`);
  $('working-set').textContent = workingSet(now.working_set, share);
  const devices = now.pool.members;
  $('devices-part').hidden = devices.length < 2;
  const columns = ['Device', 'State', 'Size', 'In use', 'Dirty', 'Errors'];
  fill('devices', el('thead', {}, el('tr', {}, ...columns.map(name => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, ...devices.map(one => el('tr', {}, el('th', { scope: 'row' }, one.flash || `member ${one.member}`), el('td', {}, one.state),
      ...[one.size_bytes, one.used_bytes, one.dirty_bytes].map(value => el('td', {}, bytes(value))), el('td', {}, count(one.errors))))));
  const names = Object.keys(now.settings);
  fill('settings', el('tbody', {}, ...names.map(name => el('tr', {}, el('th', { scope: 'row' }, name), el('td', {}, now.settings[name])))));
}

function workingSet(set, share) {
  const time = `the last ${duration(set.seconds)}`, [quarter, double] = set.larger;
  if (!set.missed_bytes) return set.seconds < 60 ? 'What a larger pool would save is not known yet.' : `No misses in ${time}: the pool holds the working set.`;
  const misses = `the misses of ${time} (${bytes(set.missed_bytes)})`;
  const others = share < .75 ? 'they are of data that was not read before, and there is room for it.' : 'they are of data that was not read before, or long ago.';
  if (double.saved_share_of_misses < .001) return `A larger pool would save none of ${misses}: ${others}`;
  const said = step => `${bytes(step.more_bytes)} more would save ${percent(step.saved_share_of_misses)}`;
  return `${said(quarter)} of ${misses}; ${said(double)}.`;
}

function drawEvents() {
  const events = known.events.slice(0, 100);
  $('events-note').textContent = events.length ? `The last ${events.length}, the newest first.` : 'Nothing yet.';
  fill('events', el('thead', {}, el('tr', {}, ...['When', 'Kind', 'What'].map(name => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, ...events.map(event => el('tr', {}, el('td', {}, stamp(1000 * event.time)),
      el('td', { class: event.severity }, (event.severity === 'note' ? '' : event.severity === 'error' ? '✖ ' : '▲ ') + event.kind),
      el('td', {}, event.text + (event.count > 1 ? ` (${event.count} times within an hour)` : ''))))));
}

// Rows, and several of them as one.
function recent(span) {
  const from = seconds() - span - 10;
  return [...known.rows[10].values()].filter(row => row[0] >= from);
}
const MEDIANS = { read_p50_ns: 'reads', write_p50_ns: 'writes', sync_p50_ns: 'syncs' };
function bucket(rows) {
  if (!rows.length) return null;
  const one = {};
  for (const [name, at] of Object.entries(known.columns)) {
    if (name === 'time') one.time = rows[0][at];
    else if (MEDIANS[name]) {
      const by = known.columns[MEDIANS[name]];
      const weight = rows.reduce((sum, row) => sum + row[by], 0);
      one[name] = weight ? rows.reduce((sum, row) => sum + row[at] * row[by], 0) / weight : 0;
    } else if (/_ns$|^dirty|^oldest|_per_second$/.test(name)) one[name] = Math.max(...rows.map(row => row[at]));
    else one[name] = rows.reduce((sum, row) => sum + row[at], 0);
  }
  return one;
}
function ratioOf(row) {
  const hits = row.flash_hit_bytes + row.memory_hit_bytes + row.origin_hit_bytes, all = hits + row.miss_bytes;
  return all ? hits / all : null;
}
/** The points of the range: each is one row or several, or null where the mount was not there. */
function points(most) {
  const [, span, step] = range;
  const each = step * Math.max(1, Math.ceil(span / step / most));
  // Up to the newest row, so that its successor, which is not asked for yet, is no gap.
  const newest = Math.max(0, ...known.rows[step].keys()), now = seconds();
  const last = Math.floor((now - newest < 3 * step ? newest : now) / each) * each, first = last - Math.floor(span / each) * each + each;
  const sorted = new Map();
  for (const row of known.rows[step].values()) {
    const time = Math.floor(row[0] / each) * each;
    if (time >= first) (sorted.get(time) || sorted.set(time, []).get(time)).push(row);
  }
  const made = [];
  for (let time = first; time <= last; time += each) {
    const one = bucket(sorted.get(time) || []);
    if (one) one.time = time;
    made.push(one);
  }
  return { made, first, each };
}

const perSecond = name => row => row.covered_ms ? 1000 * row[name] / row.covered_ms : 0;
const sum = (...of) => row => of.reduce((total, one) => total + one(row), 0);
const times = kind => [
  { label: 'p50', of: row => row[kind + '_p50_ns'] || null, kind: 's-flash' },
  { label: 'p99', of: row => row[kind + '_p99_ns'] || null, kind: 's-memory', dash: 'dash' },
  { label: 'longest', of: row => row[kind + '_longest_ns'] || null, kind: 's-origin', dash: 'dots' }];
const CHARTS = [
  { id: 'sources', title: 'Reads, by where they came from', unit: v => bytes(v) + '/s', stacked: true, base: 1024, series: [
    { label: 'Flash', of: perSecond('flash_hit_bytes'), kind: 's-flash' },
    { label: 'Memory', of: perSecond('memory_hit_bytes'), kind: 's-memory' },
    { label: 'Origin', of: sum(perSecond('miss_bytes'), perSecond('origin_hit_bytes')), kind: 's-origin' },
    { label: 'Bypassed', of: perSecond('bypassed_read_bytes'), kind: 's-bypass' }] },
  { id: 'ratio', title: 'Hit ratio', unit: percent, max: 1, series: [{ label: 'Hits', of: ratioOf, kind: 's-flash' }] },
  { id: 'reads', title: 'Latency of reads', unit: nanos, log: true, series: times('read') },
  { id: 'writes', title: 'Latency of writes', unit: nanos, log: true, series: times('write') },
  { id: 'syncs', title: 'Latency of syncs', unit: nanos, log: true, series: times('sync') },
  { id: 'work', title: 'Requests, and what the origin had to do', unit: v => count(v) + '/s', series: [
    { label: 'Requests of applications', of: sum(perSecond('reads'), perSecond('writes'), perSecond('syncs')), kind: 's-flash' },
    { label: 'Reads, writes and syncs at the origin', of: sum(perSecond('origin_reads'), perSecond('origin_writes_and_syncs')), kind: 's-origin', dash: 'dash' }] },
  { id: 'dirty', title: 'Dirty data', unit: bytes, base: 1024, series: [{ label: 'On flash alone', of: row => row.dirty_bytes, kind: 's-origin' }] },
  { id: 'oldest', title: 'Age of the oldest dirty data', unit: v => duration(v / 1000), series: [{ label: 'Oldest', of: row => row.oldest_dirty_age_ms, kind: 's-origin' }] },
  { id: 'written', title: 'Writes', unit: v => bytes(v) + '/s', base: 1024, series: [
    { label: 'By applications', of: perSecond('write_bytes'), kind: 's-flash' },
    { label: 'To flash', of: perSecond('flash_write_bytes'), kind: 's-memory', dash: 'dash' },
    { label: 'To the origin', of: perSecond('destaged_bytes'), kind: 's-origin', dash: 'dots' }] },
];

/** The upper end of an axis: a round number above all values. */
function roundUp(value, base) {
  if (!(value > 0)) return 1;
  const unit = base === 1024 ? 1024 ** Math.floor(Math.log(value) / Math.log(1024)) : 1;
  const scaled = value / unit, ten = 10 ** Math.floor(Math.log10(scaled));
  return unit * ten * [1, 2, 4, 5, 10].find(step => step * ten >= scaled);
}

function drawCharts() {
  const width = Math.max(280, document.querySelector('figure svg').clientWidth || 600);
  for (const chart of CHARTS) draw(chart, width);
}

function draw(chart, width) {
  const { made, first, each } = points(Math.min(360, Math.floor(width / 2)));
  const height = 190, left = 62, right = 6, top = 8, bottom = 20;
  const values = chart.series.map(one => made.map(row => row === null ? null : one.of(row)));
  const stacks = values.map((own, at) => !chart.stacked ? own : own.map((value, x) => value === null ? null : values.slice(0, at + 1).reduce((total, other) => total + other[x], 0)));
  const all = stacks.flat().filter(value => value !== null && (value > 0 || !chart.log));
  const low = chart.log ? 10 ** Math.floor(Math.log10(Math.min(1e5, ...all))) : 0;
  const high = chart.max || (chart.log ? 10 ** Math.ceil(Math.log10(Math.max(1e6, ...all))) : roundUp(Math.max(0, ...all), chart.base));
  const share = value => chart.log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : value / high;
  const x = at => left + (width - left - right) * (made.length < 2 ? .5 : at / (made.length - 1));
  const y = value => top + (height - top - bottom) * (1 - share(value));
  const shown = [];
  const marks = chart.log ? Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, n) => low * 10 ** n) : [0, high / 2, high];
  for (const mark of marks) {
    shown.push(svg('line', { class: 'grid', x1: left, x2: width - right, y1: y(mark), y2: y(mark) }),
      svg('text', { x: left - 6, y: y(mark) + 4, 'text-anchor': 'end' }, chart.unit(mark)));
  }
  const [, span] = range, tick = { 900: 300, 3600: 900, 14400: 3600, 86400: 14400, 604800: 86400 }[span] * (width < 420 ? 2 : 1);
  const zone = new Date().getTimezoneOffset() * 60;
  for (let time = Math.ceil((first - zone) / tick) * tick + zone; time <= first + each * (made.length - 1); time += tick) {
    const at = x((time - first) / each), words = new Date(1000 * time);
    shown.push(svg('line', { class: 'grid', x1: at, x2: at, y1: top, y2: height - bottom }),
      svg('text', { x: at, y: height - 5, 'text-anchor': at > width - 30 ? 'end' : 'middle' }, tick >= 86400 ? words.toLocaleDateString([], { weekday: 'short', day: 'numeric' }) : words.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })));
  }
  chart.series.forEach((one, at) => {
    for (const [from, to] of runs(stacks[at])) {
      const line = stacks[at].slice(from, to).map((value, n) => `${x(from + n).toFixed(1)},${y(value).toFixed(1)}`);
      if (chart.stacked) {
        const below = Array.from({ length: to - from }, (_, n) => { const i = to - 1 - n; return `${x(i).toFixed(1)},${y(at ? stacks[at - 1][i] : 0).toFixed(1)}`; });
        shown.push(svg('g', { class: one.kind }, svg('path', { class: 'area', d: `M${line.concat(below).join('L')}Z` })));
      } else {
        const d = line.length > 1 ? 'M' + line.join('L') : `M${line[0]}h2`;
        shown.push(svg('g', { class: one.kind }, svg('path', { class: 'linepath ' + (one.dash || ''), d })));
      }
    }
  });
  for (const event of known.events) {
    const at = (event.time - first) / each;
    if (at < 0 || at > made.length - 1 + .999) continue;
    const place = x(Math.min(at, made.length - 1)), title = svg('title', {}, `${stamp(1000 * event.time)} ${event.text}`);
    shown.push(svg('path', { class: 'event ' + event.severity, d: `M${place - 4},${top - 8}h8l-4,7z` }, title));
  }
  const cursor = svg('line', { class: 'cursor hidden', y1: top, y2: height - bottom });
  const figure = $('chart-' + chart.id), picture = figure.querySelector('svg');
  picture.setAttribute('viewBox', `0 0 ${width} ${height}`);
  picture.replaceChildren(...shown, cursor);
  chart.show = at => {
    const there = at === null ? made.findLastIndex(row => row !== null) : at;
    cursor.classList.toggle('hidden', at === null);
    cursor.setAttribute('x1', x(there));
    cursor.setAttribute('x2', x(there));
    const words = made[there] ? stamp(1000 * (first + each * there)) : there < 0 ? 'no data yet' : stamp(1000 * (first + each * there)) + ': no data';
    figure.querySelector('.at').textContent = words;
    chart.series.forEach((one, n) => {
      const value = there < 0 ? null : values[n][there];
      figure.querySelectorAll('.legend b')[n].textContent = value === null ? '–' : chart.unit(value);
    });
    picture.setAttribute('aria-label', `${chart.title}, ${words}: ` + chart.series.map((one, n) => `${one.label} ${there < 0 || values[n][there] === null ? 'none' : chart.unit(values[n][there])}`).join(', ') + '. Arrow keys move.');
  };
  chart.place = event => {
    const box = picture.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * width;
    return Math.max(0, Math.min(made.length - 1, Math.round((at - left) / (width - left - right) * (made.length - 1))));
  };
  chart.last = made.length - 1;
  if (chart.at !== null && chart.at > chart.last) chart.at = null;
  chart.show(chart.at);
  if (figure.querySelector('details').open) drawTable(chart, figure);
}

/** Where a line has values: from, and the first behind. */
function runs(line) {
  const found = [];
  for (let from = 0; from < line.length; from++) {
    if (line[from] === null || Number.isNaN(line[from])) continue;
    let to = from;
    while (to < line.length && line[to] !== null) to++;
    found.push([from, to]);
    from = to;
  }
  return found;
}

function drawTable(chart, figure) {
  const { made } = points(48);
  const rows = made.filter(row => row !== null).reverse();
  figure.querySelector('table').replaceChildren(el('caption', { class: 'hidden' }, chart.title),
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'From'), ...chart.series.map(one => el('th', { scope: 'col' }, one.label)))),
    el('tbody', {}, ...rows.map(row => el('tr', {}, el('th', { scope: 'row' }, stamp(1000 * row.time)),
      ...chart.series.map(one => { const value = one.of(row); return el('td', {}, value === null ? '–' : chart.unit(value)); })))));
}

for (const chart of CHARTS) {
  chart.at = null;
  const picture = svg('svg', { role: 'img', tabindex: '0', 'aria-label': chart.title });
  const at = el('output', { class: 'at', 'aria-live': 'off' });
  const figure = el('figure', { id: 'chart-' + chart.id, 'aria-labelledby': `title-${chart.id}` },
    el('h2', { id: `title-${chart.id}` }, chart.title), at,
    el('ul', { class: 'legend' }, ...chart.series.map(one => el('li', { class: one.kind + ' key' }, el('i'), el('em', {}, one.label + ' '), el('b')))),
    picture, el('details', {}, el('summary', {}, 'As a table'), el('div', { class: 'scroll', tabindex: '0' }, el('table'))));
  figure.querySelector('details').addEventListener('toggle', () => drawTable(chart, figure));
  const move = place => { chart.at = place; if (chart.show) chart.show(place); };
  picture.addEventListener('pointermove', event => { if (chart.place) move(chart.place(event)); });
  picture.addEventListener('pointerdown', event => { if (chart.place) move(chart.place(event)); });
  picture.addEventListener('pointerleave', () => move(null));
  picture.addEventListener('focus', () => at.setAttribute('aria-live', 'polite'));
  picture.addEventListener('blur', () => { at.setAttribute('aria-live', 'off'); move(null); });
  picture.addEventListener('keydown', event => {
    const from = chart.at === null ? chart.last : chart.at;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - 10, PageDown: from + 10, Home: 0, End: chart.last }[event.key];
    if (event.key === 'Escape') return move(null);
    if (to === undefined || !chart.show) return;
    event.preventDefault();
    move(Math.max(0, Math.min(chart.last, to)));
  });
  $('pool-card').before(figure);
}
for (const one of RANGES) {
  const button = el('input', { type: 'radio', name: 'range' });
  button.checked = one === range;
  button.addEventListener('change', () => { range = one; remember('range', one[0]); if (known.now) drawCharts(); });
  $('ranges').append(el('label', {}, button, el('span', {}, one[0])));
}
const THEMES = ['system', 'light', 'dark'];
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $('theme').textContent = `Theme: ${name}`;
  remember('theme', name);
}
const theme = remembered('theme', 'system');
setTheme(THEMES.includes(theme) ? theme : 'system');
$('theme').addEventListener('click', () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3]));
// Later, as what is drawn may change the size again.
new ResizeObserver(() => requestAnimationFrame(() => { if (known.now) drawCharts(); })).observe($('charts'));
document.addEventListener('visibilitychange', () => { if (!document.hidden && waiting) { clearTimeout(waiting); turn(); } });
turn();
