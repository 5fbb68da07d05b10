import { call, stream } from './api.js';
import { ago, cell, count, el, num, replace, seconds, short, size, table, took } from './dom.js';

function card(title, big, ...rest) {
  return el('section', { class: 'card' }, el('h2', {}, title), el('div', { class: 'big' }, big), ...rest);
}

function bar(part, whole, label) {
  const share = whole ? Math.min(1, part / whole) : 0;
  const b = el('div', { class: share > 0.9 ? 'bar full' : 'bar', role: 'img', 'aria-label': `${label}: ${Math.round(share * 100)} %` }, el('span'));
  b.firstChild.style.width = share * 100 + '%';
  return b;
}

// trend draws values over time.
function trend(title, samples, value, text) {
  const points = samples.map((s) => [Date.parse(s.time), value(s)]);
  const section = el('section', { class: 'card' }, el('h2', {}, title));
  if (points.length < 2) {
    section.append(el('p', { class: 'note' }, 'sampled every minute'));
    return section;
  }
  const values = points.map((p) => p[1]);
  const low = Math.min(...values), high = Math.max(...values), from = points[0][0], to = points.at(-1)[0];
  const at = ([t, v]) => `${((t - from) / (to - from)) * 300},${70 - ((v - low) / (high - low || 1)) * 64}`;
  const line = 'M' + points.map(at).join('L');
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 300 74');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('class', 'trend');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `${title}: from ${text(values[0])} to ${text(values.at(-1))}, between ${text(low)} and ${text(high)}`);
  for (const [kind, d] of [['area', `${line}L300,74L0,74Z`], ['line', line]]) {
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('class', kind);
    path.setAttribute('d', d);
    svg.append(path);
  }
  section.append(svg, el('p', { class: 'soft' }, `${text(low)} to ${text(high)}, ${took((to - from) / 1000)}`));
  return section;
}

// rates are how many steps ended between two samples.
function rates(samples) {
  return samples.slice(1).map((s, i) => ({ time: s.time, ended: num(s.stepsRun) + num(s.stepsHit) - num(samples[i].stepsRun) - num(samples[i].stepsHit) }));
}

export function show(main, fail) {
  const now = el('div', { class: 'cards' }), trends = el('div', { class: 'cards' });
  const policies = el('section', { class: 'panel' }), next = el('section', { class: 'panel' }), log = el('section', { class: 'panel' });
  main.append(now, trends, policies, next, log);
  const stop = new AbortController();
  let drawn = 0;

  async function history() {
    const h = await call('Storage/GetHistory', {}, stop.signal);
    const samples = h.samples || [];
    replace(trends, trend('Committed', samples, (s) => num(s.committedBytes), size), trend('Free on the disk', samples, (s) => num(s.diskFreeBytes), size),
      trend('Steps a minute', rates(samples), (s) => s.ended, count), trend('Mounts', samples, (s) => num(s.mounts), count));
    replace(log, el('h2', {}, 'Pruned'), table(['When', 'Snapshots#', 'Bytes#', 'Error'], (h.prunings || []).reverse().map((p) => el('tr', {},
      cell(ago(p.time)), cell(count(p.snapshots), 'number'), cell(size(p.bytes), 'number'), cell(p.error || '', 'wide bad'))), 'nothing, since the daemon was started'));
  }

  async function planned() {
    const list = [];
    let all = {};
    await stream('Storage/Prune', { dryRun: true, most: 20 }, (m) => (m.removal ? list.push(m.removal) : (all = m.result || all)), stop.signal);
    replace(next, el('h2', {}, 'Next to be pruned'), table(['Snapshot', 'Size#', 'Last used', 'Why'], list.map((r) => el('tr', {},
      cell(short(r.name), 'mono'), cell(size(r.bytes), 'number'), cell(ago(r.lastUsed)), cell(r.reason, 'wide'))), 'nothing'),
    num(all.snapshots) > list.length ? el('p', { class: 'note' }, `and ${count(num(all.snapshots) - list.length)} more`) : '');
  }

  return {
    stop: () => stop.abort(),
    update({ status: s }) {
      const used = num(s.diskBytes) - num(s.diskFreeBytes), hits = num(s.stepsHit), ran = num(s.stepsRun);
      replace(now,
        card('Disk', size(s.diskFreeBytes) + ' free', bar(used, num(s.diskBytes), 'disk in use'), el('div', { class: 'soft' }, `${size(used)} of ${size(s.diskBytes)} in use`),
          num(s.diskInodes) ? bar(num(s.diskInodes) - num(s.diskFreeInodes), num(s.diskInodes), 'inodes in use') : '',
          num(s.diskInodes) ? el('div', { class: 'soft' }, `${count(s.diskFreeInodes)} inodes free`) : ''),
        card('Snapshots', count(s.snapshots), el('div', { class: 'soft' }, `${size(s.committedBytes)} in ${count(s.committed)} that are committed`),
          num(s.trash) ? el('div', { class: 'soft' }, `${count(s.trash)} being deleted`) : ''),
        card('Steps', `${count(s.stepsRunning)} running`, el('div', { class: 'soft' }, `${count(s.stepsQueued)} queued, ${count(s.concurrency)} at once`),
          el('div', { class: 'soft' }, `${count(hits + ran)} in ${took((Date.now() - Date.parse(s.started)) / 1000)}: ${hits + ran ? Math.round((100 * hits) / (hits + ran)) : 0} % hits, ${count(s.stepsFailed)} failed`)),
        ...(s.remoteCaches || []).map((c) => card('Remote cache', `${count(c.fetched)} fetched`, el('div', { class: 'soft mono' }, c.repository),
          el('div', { class: 'soft' }, `${count(c.missed)} not there, ${count(c.exported)} exported, ${count(s.exportsWaiting)} waiting`),
          num(c.refused) ? el('div', { class: 'bad' }, `${count(c.refused)} refused`) : '',
          c.paused ? el('div', { class: 'bad' }, 'does not answer; steps are run') : '')),
        card('Mounts', count(s.mounts), el('div', { class: 'soft' }, `${count(s.mountsHeld)} held, ${count(num(s.mounts) - num(s.mountsHeld))} idle`),
          num(s.mountsParked) ? el('div', { class: 'bad' }, `${count(s.mountsParked)} cannot be unmounted`) : ''));
      if (Date.now() - drawn < 15000) return;
      drawn = Date.now();
      replace(policies, el('h2', {}, 'Limits'), el('p', { class: 'soft' }, seconds(s.pruneInterval) ? `pruned every ${took(seconds(s.pruneInterval))} by these policies:` : 'pruned when a step needs room, by these policies:'),
        el('ol', { class: 'mono' }, ...(s.policies || []).map((p) => el('li', {}, p))));
      history().catch(fail);
      planned().catch(fail);
    },
  };
}
