'use strict';
// The page of a report: reads the data block, keeps its state in the address's fragment, draws one view at a time.
// Every text goes in by textContent; nothing that a document says is ever parsed as markup.
(() => {
  const D = JSON.parse(document.getElementById('data').textContent);
  const C = {ID: 0, OUTCOME: 1, RED: 2, COLUMN: 3, FAILURE: 4, VERDICT: 5, MECHANISM: 6, ISSUES: 7, REPAIRED: 8,
             TIME: 9, GRADIENT: 10, WHERE: 11, ALSO: 12, DEATH: 13, LOSS: 14, REASON: 15, ATTEMPTS: 16, OPTIONS: 17,
             UPSTREAM: 18};
  const LETTER = {pass: '\u2713', wrong_gradient: 'W', nonfinite: 'N', error: 'E', hang: 'H', crash: 'C', oom: 'O',
                  invariant: 'I', unsupported: 'u', unchecked: '?', notrun: '\u00b7'};
  const WORDS = {pass: 'right', wrong_gradient: 'wrong gradients', nonfinite: 'not finite', error: 'error',
                 hang: 'hangs', crash: 'crashes', oom: 'out of memory', invariant: 'broken invariant',
                 unsupported: 'not supported', unchecked: 'not compared', notrun: 'has not run'};
  const WORST = ['crash', 'hang', 'oom', 'wrong_gradient', 'nonfinite', 'error', 'invariant', 'unchecked', 'notrun',
                 'unsupported', 'pass'];
  const SIDES = ['fixes off', 'some fixes', 'fixes on'];
  const text = (index) => (index < 0 ? '' : D.strings[index]);

  // --- elements
  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === 'class') node.className = value;
      else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
      else if (value !== false && value !== undefined) node.setAttribute(key, value === true ? '' : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== '') node.append(child);
    }
    return node;
  }
  const link = (address, label) => /^https:\/\//.test(address)
    ? el('a', {href: address, rel: 'noreferrer noopener'}, label) : label;
  const act = (label, onclick, name) => el('button', {class: 'link', type: 'button', onclick, 'aria-label': name}, label);

  // --- a case's axes, out of its id
  const defaults = Object.fromEntries(D.axes.map(([name, values]) => [name, values[0]]));
  function axesOf(id) {
    const parts = id.split('/');
    const axes = {...defaults, backend: parts[0], loss: parts[1]};
    for (const part of parts.slice(2)) {
      const at = part.indexOf('=');
      axes[part.slice(0, at)] = part.slice(at + 1);
    }
    return axes;
  }
  const cases = D.cases.map((row, index) => {
    const outcome = D.outcomes[row[C.OUTCOME]];
    return {row, index, id: row[C.ID], outcome, red: row[C.RED] === 1, axes: axesOf(row[C.ID]),
            mechanism: text(row[C.MECHANISM]), failure: text(row[C.FAILURE])};
  });
  const byId = new Map(cases.map((c) => [c.id, c]));
  const used = D.axes.map(([name, values]) => {
    const seen = new Set(cases.map((c) => c.axes[name]));
    return [name, values.filter((value) => seen.has(value))];
  }).filter(([, values]) => values.length > 1);
  const fixSets = [...new Set(cases.map((c) => c.axes.fix))].sort();
  if (fixSets.length > 1) used.push(['fix', fixSets]);

  // --- state
  let state = new URLSearchParams(location.hash.slice(1));
  const get = (key) => state.get(key) || '';
  function put(changes, replace) {
    const next = new URLSearchParams(state);
    for (const [key, value] of Object.entries(changes)) value ? next.set(key, value) : next.delete(key);
    const hash = '#' + next.toString();
    if (replace) {
      history.replaceState(null, '', hash);
      state = next;
      draw();
    } else {
      location.hash = hash;  // draws by hashchange
    }
  }
  addEventListener('hashchange', () => { state = new URLSearchParams(location.hash.slice(1)); draw(); });

  function shown(c) {
    for (const [name] of used) {
      const wanted = get(name);
      if (wanted && c.axes[name] !== wanted) return false;
    }
    if (get('outcome') && c.outcome !== get('outcome')) return false;
    if (get('red') && !c.red) return false;
    if (get('mechanism') && c.mechanism !== get('mechanism')) return false;
    if (get('issue') && !c.row[C.ISSUES].some((i) => D.issues[i][0] === get('issue'))) return false;
    const wanted = get('q').toLowerCase();
    if (!wanted) return true;
    const all = [c.id, c.outcome, c.failure, ...c.row[C.ISSUES].map((i) => D.issues[i].slice(0, 2).join(' '))].join('\n');
    return all.toLowerCase().includes(wanted);
  }

  // --- parts
  const glyph = (outcome, tag = 'span', attributes = {}) =>
    el(tag, {...attributes, class: `glyph ${outcome} ${attributes.class || ''}`}, LETTER[outcome] || '?');
  const open = (c) => put({case: c.id});
  const caseLink = (c) => act(c.id, () => open(c));
  function worst(list) {
    return list.reduce((a, b) => (WORST.indexOf(b.outcome) < WORST.indexOf(a.outcome) ? b : a));
  }

  // --- the grid: a row a backend, a block a loss, in it checkpoint by frozen; fixes off and on side by side, and why below
  let slots = [];
  function grid() {
    slots = [];
    const values = (name) => D.axes.find(([axis]) => axis === name)[1].filter((v) => cases.some((c) => c.axes[name] === v));
    const backends = values('backend'), losses = values('loss');
    const checkpoints = values('checkpoint'), frozen = values('frozen');
    const bins = new Map();
    for (const c of cases) {
      const key = [c.axes.backend, c.axes.loss, c.row[C.COLUMN], c.axes.checkpoint, c.axes.frozen].join('/');
      if (!bins.has(key)) bins.set(key, []);
      bins.get(key).push(c);
    }
    const cell = (list, place) => {
      const c = worst(list);
      const what = `${place}: ` + (list.length > 1 ? `${list.length} cases, the worst: ` : '') + WORDS[c.outcome] + (c.red ? ', red' : '');
      const button = glyph(c.outcome, 'button', {type: 'button', title: what, 'aria-label': what,
        class: list.some((x) => x.red) ? 'red' : '', onclick: () => open(worst(list.filter(shown).length ? list.filter(shown) : list))});
      slots.push({button, list});
      return button;
    };
    const block = (backend, loss, side) => el('div', {class: 'block', role: 'group', 'aria-label': `${backend}, ${loss}, ${SIDES[side]}`},
      checkpoints.map((checkpoint) => el('div', {class: 'line'}, frozen.map((kept) => {
        const list = bins.get([backend, loss, side, checkpoint, kept].join('/'));
        return list ? cell(list, `${backend}, ${loss}, ${SIDES[side]}, checkpoint ${checkpoint}, frozen ${kept}`) : el('span', {class: 'gap'});
      }))));
    const heads = () => el('div', {class: 'blocks heads', 'aria-hidden': 'true'},
      el('div', {class: 'rows corner'}, el('span', {}, 'frozen \u2192'), el('span', {}, 'checkpoint \u2193')),
      losses.map((loss) => el('div', {class: 'block'}, el('b', {}, loss), el('div', {class: 'line'}, frozen.map((kept) => el('span', {}, kept))))));
    const there = [0, 2, 1].filter((which) => cases.some((c) => c.row[C.COLUMN] === which));
    const main = there.slice(0, there[0] === 0 && there[1] === 2 ? 2 : 1);  // what else there is stands below
    const of = (at) => `side ${at === 0 ? 'first' : at === 1 ? 'second' : 'below'}`;
    const side = (backend, which, at) => {
      if (!cases.some((c) => c.axes.backend === backend && c.row[C.COLUMN] === which)) {
        return at < 2 ? el('div', {class: `${of(at)} empty`}) : null;
      }
      return el('div', {class: of(at)}, el('h4', {}, SIDES[which]), heads(),
        el('div', {class: 'blocks'}, el('div', {class: 'rows', 'aria-hidden': 'true'}, checkpoints.map((name) => el('span', {}, name))),
          losses.map((loss) => block(backend, loss, which))));
    };
    return el('section', {class: 'grid', 'aria-label': 'Grid'},
      el('div', {class: 'top', 'aria-hidden': 'true'}, el('span', {}), main.map((which, at) => el('div', {class: of(at)}, el('h4', {}, SIDES[which]), heads()))),
      backends.map((backend) => el('div', {class: 'backend'}, el('h3', {}, backend), main.map((which, at) => side(backend, which, at)), why(backend),
        there.slice(main.length).map((which) => side(backend, which, 2)))));
  }
  function rightWords(backend) {
    const right = new Set(cases.filter((c) => c.axes.backend === backend && c.outcome === 'pass').map((c) => c.row[C.COLUMN] > 0));
    return right.size === 2 ? 'Right, with fixes and without.' : right.size === 1 ? 'Right.' : '';
  }
  // What the failures of a backend are, the most frequent first: what, by which mechanism, and with which fixes it passes.
  function why(backend) {
    const kinds = new Map();
    for (const c of cases) {
      if (c.axes.backend !== backend || !c.failure) continue;
      const name = `${c.mechanism}\n${c.outcome}`;
      if (!kinds.has(name)) kinds.set(name, []);
      kinds.get(name).push(c);
    }
    if (!kinds.size) return el('p', {class: 'why none'}, rightWords(backend));
    const sorted = [...kinds.values()].sort((a, b) => b.some((c) => c.red) - a.some((c) => c.red) || b.length - a.length);
    return el('ul', {class: 'why'}, sorted.slice(0, 4).map((all) => {
      const {mechanism, outcome} = all[0];
      const repaired = all.filter((c) => c.row[C.REPAIRED] >= 0).map((c) => cases[c.row[C.REPAIRED]].axes.fix);
      const fixes = [...new Set(repaired)].sort((a, b) => a.length - b.length);
      return el('li', {}, glyph(outcome, 'span', {class: all.some((c) => c.red) ? 'red' : ''}), el('span', {}, el('b', {}, `${all.length} \u00d7 ${WORDS[outcome]}`), ' \u2013 ',
        mechanism ? act(mechanism, () => put({view: 'mechanisms', mechanism})) : all[0].failure, mechanism ? `: ${D.mechanisms[mechanism] || ''}. ` : '. ',
        fixes.length ? el('span', {class: 'repair'}, 'Right with ', el('b', {}, fixes[0]), fixes.length > 1 ? `, or ${fixes.length - 1} more by case` : '', '.') : null));
    }), sorted.length > 4 ? el('li', {}, act(`and ${sorted.length - 4} kinds more`, () => put({view: 'cases', backend}))) : null);
  }
  function moveInGrid(event) {
    const step = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]}[event.key];
    if (!step || !event.target.classList.contains('glyph')) return;
    const from = event.target.getBoundingClientRect();
    let best = null, least = Infinity;
    for (const {button} of slots) {
      if (button === event.target) continue;
      const to = button.getBoundingClientRect();
      const along = (to.x - from.x) * step[0] + (to.y - from.y) * step[1];
      const aside = Math.abs((to.x - from.x) * step[1]) + Math.abs((to.y - from.y) * step[0]);
      if (along <= 1) continue;
      if (along + 4 * aside < least) { least = along + 4 * aside; best = button; }
    }
    if (best) { best.focus(); event.preventDefault(); }
  }

  // --- lists
  const PAGE = 100;
  function list(items, columns, empty) {
    if (items.length === 0) return el('p', {class: 'none'}, empty);
    const body = el('tbody', {});
    let count = 0;
    const more = el('button', {class: 'more', type: 'button', onclick: () => fill()});
    const fill = () => {
      for (const item of items.slice(count, count + PAGE)) {
        body.append(el('tr', {}, columns.map(([, draw, kind]) => el('td', {class: kind || ''}, draw(item)))));
      }
      count = Math.min(items.length, count + PAGE);
      more.textContent = `Show more (${items.length - count} left)`;
      more.hidden = count === items.length;
    };
    fill();
    return el('div', {}, el('table', {class: 'list'},
      el('thead', {}, el('tr', {}, columns.map(([head, , kind]) => el('th', {class: kind === 'number' ? kind : '', scope: 'col'}, head)))), body), more);
  }
  const issueLinks = (c) => c.row[C.ISSUES].flatMap((i, n) => [n ? ', ' : '', act(D.issues[i][0], () => put({view: 'issues', issue: D.issues[i][0], case: ''}))]);
  const COLUMNS = [['', (c) => glyph(c.outcome, 'span', {class: c.red ? 'red' : ''})],
    ['case', caseLink, 'mono'], ['what happened', (c) => c.failure || WORDS[c.outcome] + (c.row[C.REASON] < 0 ? '' : ': ' + text(c.row[C.REASON]))],
    ['issue', issueLinks], ['ms', (c) => c.row[C.TIME].toFixed(1), 'number']];

  const views = {
    grid: ['Grid', () => [grid()]],
    cases: ['Cases', () => [list(cases.filter(shown), COLUMNS, 'No case fits the filters.')]],
    issues: ['Issues', () => {
      const seen = D.issues.map((issue, i) => [issue, cases.filter((c) => c.row[C.ISSUES].includes(i))]);
      const chosen = seen.filter(([issue]) => !get('issue') || issue[0] === get('issue'));
      if (!seen.length) return [el('p', {class: 'none'}, 'No failure here is known as a public issue.')];
      return chosen.map(([issue, all]) => el('section', {}, el('h2', {}, link(issue[2], issue[0]), ' ', issue[1]),
        el('p', {class: 'count'}, `${all.length} cases show it`, all.some((c) => c.row[C.REPAIRED] >= 0) ? `; ${all.filter((c) => c.row[C.REPAIRED] >= 0).length} pass with fixes` : '',
          '. ', el('code', {}, `regather repro '${issue[0]}'`)),
        get('issue') ? list(all.filter(shown), COLUMNS, 'No case fits the filters.') : act('Show its cases', () => put({issue: issue[0]}))));
    }],
    mechanisms: ['Mechanisms', () => {
      const names = [...new Set(cases.filter((c) => c.mechanism).map((c) => c.mechanism))].sort();
      const chosen = names.filter((name) => !get('mechanism') || name === get('mechanism'));
      if (!names.length) return [el('p', {class: 'none'}, 'No failure here has a known mechanism.')];
      return chosen.map((name) => {
        const all = cases.filter((c) => c.mechanism === name);
        const fixes = [...new Set(all.filter((c) => c.row[C.REPAIRED] >= 0).map((c) => cases[c.row[C.REPAIRED]].axes.fix))];
        return el('section', {}, el('h2', {class: 'mono'}, name), el('p', {}, D.mechanisms[name] || ''),
          el('p', {class: 'count'}, `${all.length} cases`, fixes.length ? `; passes with ${fixes.join(', ')}` : ''),
          get('mechanism') ? list(all.filter(shown), COLUMNS, 'No case fits the filters.') : act('Show its cases', () => put({mechanism: name})));
      });
    }],
    slowest: ['Slowest', () => [list(cases.filter(shown).sort((a, b) => b.row[C.TIME] - a.row[C.TIME]).slice(0, 50), COLUMNS, 'No case fits the filters.')]],
    compare: ['Compare', () => {
      const K = D.compare;
      const kinds = Object.entries(K.counts).map(([kind, count]) => `${count} ${kind}`).join(', ');
      const order = ['regression', 'xpass', 'changed', 'flaky', 'fixed', 'new', 'absent'];
      const rows = K.changes.slice().sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0])).filter(([, id]) => { const c = byId.get(id); return !c || shown(c); });
      return [el('p', {}, 'Beside ', el('code', {}, K.before), `: ${kinds || 'nothing to compare'}.`),
        el('h2', {}, 'Likely causes'),
        K.causes.length ? el('ul', {}, K.causes.map((cause) => el('li', {}, cause))) : el('p', {class: 'none'}, 'Nothing changed.'),
        el('h2', {}, 'What changed in the environment'),
        list(K.environment, [['what', (e) => e[0], 'mono'], ['before', (e) => e[1]], ['now', (e) => e[2]]], 'Nothing: the same versions, machine and build.'),
        el('h2', {}, 'Cases that are not as before'),
        list(rows, [['', (r) => el('span', {class: 'tag'}, r[0])], ['case', (r) => byId.has(r[1]) ? caseLink(byId.get(r[1])) : r[1], 'mono'],
          ['before', (r) => text(r[2])], ['now', (r) => text(r[3])]], 'Every case is as before.')];
    }]};
  if (!D.compare) delete views.compare;

  // --- one case
  function pairs(entries) {
    return el('dl', {class: 'pairs'}, entries.filter(([, value]) => value !== '' && value !== null && value !== undefined)
      .flatMap(([key, value]) => [el('dt', {}, key), el('dd', {}, value)]));
  }
  const number = (value) => (value === null ? 'not finite' : Number(value).toPrecision(4).replace(/\.?0+(e|$)/, '$1'));
  function gradients(g) {
    const [name, error, tolerance, cosine, maxAbs, at, got, want, compared, missing, unexpected, nonfinite] = g;
    const share = error === null ? Infinity : error / tolerance;
    const bar = el('span', {class: 'bar' + (share > 1 ? ' over' : ''), role: 'img', 'aria-label': `${number(share)} times the tolerance`}, el('span', {}));
    bar.firstChild.style.width = `${Math.min(100, Math.max(1, share * 100))}%`;
    return [pairs([['worst parameter', el('code', {}, text(name))], ['relative L2 error', [number(error), ` of at most ${number(tolerance)}`, bar]],
      ['cosine', number(cosine)], ['largest difference', `${number(maxAbs)} at [${at.join(', ')}]: got ${number(got)}, expected ${number(want)}`],
      ['compared', `${compared} gradients` + (missing ? `, ${missing} missing` : '') + (unexpected ? `, ${unexpected} on frozen parameters` : '') + (nonfinite ? `, ${nonfinite} not finite` : '')]])];
  }
  function copyable(command) {
    const code = el('pre', {}, command);
    return el('div', {class: 'copy'}, code, el('button', {type: 'button', onclick: (event) => {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      const done = () => { event.target.textContent = 'Copied'; };
      if (navigator.clipboard) navigator.clipboard.writeText(command).then(done, () => {});
      else if (document.execCommand && document.execCommand('copy')) done();
    }}, 'Copy'));
  }
  function fixesThatRepair(c) {
    if (c.row[C.REPAIRED] < 0) return c.outcome === 'pass' || !c.failure ? null : el('p', {class: 'none'}, 'No case of this document that differs in its fixes alone passes. ', el('code', {}, `regather explain '${c.id}'`), ' tries the sets of fixes.');
    const other = cases[c.row[C.REPAIRED]];
    const names = other.axes.fix.split('+').filter((name) => !c.axes.fix.split('+').includes(name));
    return el('div', {}, el('p', {}, 'Passes as ', caseLink(other)), el('ul', {}, names.map((name) => el('li', {}, el('code', {}, name), D.fixes[name] ? ': ' + D.fixes[name] : ''))));
  }
  function detail(c) {
    const row = c.row, where = row[C.WHERE];
    const near = cases.filter((x) => x !== c && x.axes.backend === c.axes.backend && x.axes.loss === c.axes.loss &&
      x.axes.checkpoint === c.axes.checkpoint && x.axes.frozen === c.axes.frozen && x.row[C.COLUMN] === row[C.COLUMN]);
    const left = [el('h2', {}, 'What happened'), c.failure ? el('pre', {}, c.failure) : el('p', {}, WORDS[c.outcome], row[C.REASON] < 0 ? '' : ': ' + text(row[C.REASON])),
      pairs([['verdict', text(row[C.VERDICT])], ['mechanism', c.mechanism ? [el('code', {}, c.mechanism), D.mechanisms[c.mechanism] ? ': ' + D.mechanisms[c.mechanism] : ''] : ''],
        ['module', where && text(where[0])], ['parameter', where && text(where[1])], ['last collective', where && text(where[2])],
        ['upstream says', text(row[C.UPSTREAM])], ['attempts', row[C.ATTEMPTS] ? row[C.ATTEMPTS].map((o) => D.outcomes[o]).join(', ') : ''], ['time', `${row[C.TIME].toFixed(1)} ms`],
        ['loss', row[C.LOSS] ? `${number(row[C.LOSS][0])}, expected ${number(row[C.LOSS][1])}` : '']]),
      row[C.ALSO].length ? el('details', {}, el('summary', {}, 'Later, and on other ranks'), el('ul', {}, row[C.ALSO].map((s) => el('li', {}, text(s))))) : null,
      row[C.DEATH] < 0 ? null : el('details', {}, el('summary', {}, 'Stacks and collectives of its ranks'), el('pre', {}, text(row[C.DEATH])))];
    const right = [el('h2', {}, 'Gradients'), row[C.GRADIENT] ? gradients(row[C.GRADIENT]) : el('p', {class: 'none'}, 'None were compared.'),
      el('h2', {}, 'Issue'), row[C.ISSUES].length ? el('ul', {}, row[C.ISSUES].map((i) => el('li', {}, link(D.issues[i][2], D.issues[i][0]), ' ', D.issues[i][1]))) : el('p', {class: 'none'}, c.failure ? 'None is known for this failure.' : 'None.'),
      el('h2', {}, 'What repairs it'), fixesThatRepair(c) || el('p', {class: 'none'}, 'Nothing to repair.'),
      el('h2', {}, 'Run it again'), copyable(`regather matrix run --case '${c.id}'${text(row[C.OPTIONS])}`),
      near.length ? el('p', {}, 'In the same place of the grid: ', near.slice(0, 20).flatMap((x, n) => [n ? ', ' : '', caseLink(x)])) : null];
    const box = el('section', {class: 'detail', tabindex: '-1', 'aria-label': `Case ${c.id}`},
      el('header', {}, glyph(c.outcome, 'span', {class: c.red ? 'red' : ''}), el('h2', {}, c.id), el('button', {class: 'close', type: 'button', onclick: () => put({case: ''})}, 'Close')),
      el('div', {class: 'columns'}, el('div', {}, left), el('div', {}, right)));
    return box;
  }

  // --- the frame
  const main = document.getElementById('main');
  const nav = document.getElementById('views');
  const filters = el('form', {class: 'filters', onsubmit: (event) => event.preventDefault(), role: 'search', 'aria-label': 'Filters'});
  const legend = el('ul', {class: 'legend', 'aria-label': 'Outcomes'});
  const count = el('p', {class: 'count', role: 'status'});
  const place = el('div', {});
  const view = el('div', {});
  const selects = [];
  function select(name, values, label) {
    const node = el('select', {onchange: (event) => put({[name]: event.target.value})},
      el('option', {value: ''}, 'all'), values.map((value) => el('option', {value}, value)));
    selects.push([name, node]);
    return el('label', {}, label || name, node);
  }
  const search = el('input', {type: 'search', placeholder: 'id, text, issue', oninput: (event) => put({q: event.target.value}, true)});
  const first = ['backend', 'loss', 'checkpoint', 'frozen'];
  filters.append(el('label', {}, 'search', search),
    ...used.filter(([name]) => first.includes(name)).map(([name, values]) => select(name, values)),
    ...(D.issues.length ? [select('issue', D.issues.map((issue) => issue[0]))] : []),
    ...(cases.some((c) => c.red) ? [select('red', ['only'], 'red')] : []));
  const rest = used.filter(([name]) => !first.includes(name));
  const mechanisms = [...new Set(cases.filter((c) => c.mechanism).map((c) => c.mechanism))].sort();
  if (rest.length || mechanisms.length) {
    filters.append(el('details', {}, el('summary', {}, 'More axes'), el('div', {},
      rest.map(([name, values]) => select(name, values, name === 'fix' ? 'fixes' : name)), mechanisms.length ? select('mechanism', mechanisms) : null)));
  }
  for (const outcome of WORST.slice().reverse()) {
    const all = cases.filter((c) => c.outcome === outcome);
    if (!all.length) continue;
    legend.append(el('li', {}, el('button', {type: 'button', 'data-outcome': outcome, onclick: () => put({outcome: get('outcome') === outcome ? '' : outcome})},
      glyph(outcome), `${all.length} ${WORDS[outcome]}`)));
  }
  for (const [name, [label]] of Object.entries(views)) nav.append(el('a', {'data-view': name, href: '#'}, label));
  // On a phone the results come first, and the filters when they are asked for.
  const fold = el('details', {class: 'fold', open: innerWidth > 700 || [...state.keys()].some((key) => key !== 'view' && key !== 'case')}, el('summary', {}, 'Filters'), filters);
  main.replaceChildren(place, fold, legend, count, view);
  main.addEventListener('keydown', moveInGrid);
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape' && get('case')) put({case: ''}); });

  let drawnView = '', drawnFilters = '', drawnCase = '', opener = null;
  function draw() {
    const name = Object.hasOwn(views, get('view')) ? get('view') : 'grid';
    for (const node of nav.children) {
      const next = new URLSearchParams(state);
      next.set('view', node.dataset.view);
      next.delete('case');
      node.href = '#' + next.toString();
      node.dataset.view === name ? node.setAttribute('aria-current', 'page') : node.removeAttribute('aria-current');
    }
    for (const [key, node] of selects) node.value = get(key);
    if (search.value !== get('q')) search.value = get('q');
    for (const node of legend.querySelectorAll('button')) node.setAttribute('aria-pressed', node.dataset.outcome === get('outcome'));
    const key = new URLSearchParams(state);
    key.delete('case');
    key.delete('view');
    const visible = cases.filter(shown);
    if (drawnView !== name || (drawnFilters !== key.toString() && name !== 'grid')) view.replaceChildren(...views[name][1]());
    if (name === 'grid') {
      const set = new Set(visible);
      for (const {button, list: all} of slots) {
        button.classList.toggle('out', !all.some((c) => set.has(c)));
        button.classList.toggle('chosen', all.some((c) => c.id === get('case')));
      }
    }
    drawnView = name;
    drawnFilters = key.toString();
    count.textContent = visible.length === cases.length ? '' : `${visible.length} of ${cases.length} cases fit the filters.`;
    if (drawnCase !== get('case')) {
      const chosen = byId.get(get('case'));
      if (chosen && !drawnCase) opener = document.activeElement;
      place.replaceChildren(...(chosen ? [detail(chosen)] : []));
      if (chosen) {
        place.firstChild.focus({preventScroll: true});
        if (scrollY > place.offsetTop) place.firstChild.scrollIntoView({block: 'start'});
      }
      if (!chosen && opener && opener.isConnected) opener.focus();
      drawnCase = get('case');
    }
    document.documentElement.dataset.ready = 'yes';
  }
  draw();
})();
