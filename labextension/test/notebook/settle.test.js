import assert from 'node:assert/strict';
import { test } from 'node:test';

import { settleAll, settled, withoutWidgets } from '../../lib/notebook/settle.js';

const ITEM = 'application/vnd.agent-magics.item+json';
const WIDGET = 'application/vnd.jupyter.widget-view+json';
const view = { version_major: 2, version_minor: 0, model_id: 'm' };

test('a question becomes a sentence, in every form', () => {
  const words = 'Question: may shell run ls $& $1?';
  const data = settled({
    [WIDGET]: view,
    [ITEM]: { version: 1, kind: 'notice', level: 'info', text: words },
    'text/markdown': `> **Note:** ${words}`,
    'text/plain': `Note: ${words}`
  });
  const after = `${words} Not answered: the kernel ended.`;
  assert.deepEqual(data, {
    [ITEM]: { version: 1, kind: 'notice', level: 'info', text: after },
    'text/markdown': `> **Note:** ${after}`,
    'text/plain': `Note: ${after}`
  });
});

test('what is no sentence becomes one, also where Markdown has it in other signs', () => {
  const item = { version: 1, kind: 'notice', level: 'info', text: 'Question: 9 rows cost 1 *USD*' };
  const marked = '> **Note:** Question: 9 rows cost 1 &#42;USD&#42;';
  const after = settled({ [WIDGET]: view, [ITEM]: item, 'text/markdown': marked, 'text/plain': '' });
  assert.equal(after[ITEM].text, `${item.text}. Not answered: the kernel ended.`);
  assert.equal(after['text/markdown'], `${marked}. Not answered: the kernel ended.`);
  const card = { ...item, kind: 'text', text: 'Rows are being asked.' };
  const ended = settled({ [WIDGET]: view, [ITEM]: card }, 'the cell was copied');
  assert.equal(ended[ITEM].text, 'Rows are being asked. Not finished: the cell was copied.');
});

test('of what stands open the words are saved, never a widget', () => {
  const question = { version: 1, kind: 'notice', level: 'info', text: 'Question: may it?' };
  const call = { version: 1, kind: 'tool', status: 'running' };
  const save = data => withoutWidgets({ cells: [{ outputs: [{ data, metadata: {} }] }, {}] }).cells[0];
  const said = `${question.text} Not answered when this was saved.`;
  const texts = text => ({ 'text/markdown': text, 'text/plain': text });
  assert.deepEqual(save({ [WIDGET]: view, [ITEM]: question, ...texts(question.text) }), {
    outputs: [{ data: { [ITEM]: { ...question, text: said }, ...texts(said) }, metadata: {} }]
  });
  assert.deepEqual(save({ [WIDGET]: view, [ITEM]: call }).outputs[0].data, { [ITEM]: call });
  for (const data of [{ [WIDGET]: view }, { [ITEM]: call }, { 'text/plain': 'x' }, undefined]) {
    assert.deepEqual(save(data), { outputs: [{ data, metadata: {} }] });
  }
});

test('copies are settled, but not in a document that others share, whose new cells are theirs', () => {
  const question = { version: 1, kind: 'notice', level: 'info', text: 'Question: may it?' };
  for (const collaborative of [false, true]) {
    const drawn = [];
    const outputs = {
      toJSON: () => [{ data: { [WIDGET]: view, [ITEM]: question } }],
      set: (_, output) => drawn.push(output.data[ITEM].text)
    };
    const model = { cells: [{ id: 'new', outputs }], collaborative };
    const panel = { context: { model }, content: { widgets: [] } };
    settleAll(panel, new Set(['new']));
    const said = `${question.text} Not answered: the cell was copied.`;
    assert.deepEqual(drawn, collaborative ? [] : [said]);
    drawn.length = 0;
    settleAll(panel);
    assert.deepEqual(drawn, [`${question.text} Not answered: the kernel ended.`]);
  }
});

test('a call that ran has failed, with its live output or without', () => {
  const item = { version: 1, kind: 'tool', name: 'shell', status: 'running', note: 'approved by the person' };
  const running = { [ITEM]: item, 'text/markdown': '**shell** (running)', 'text/plain': '[shell] ls' };
  for (const data of [running, { ...running, [WIDGET]: view }]) {
    const after = settled(data);
    assert.equal(after[ITEM].status, 'failed');
    assert.equal(after[ITEM].note, 'approved by the person, the kernel ended');
    assert.equal(after['text/markdown'], '**shell** (failed, the kernel ended)');
    assert.equal(after['text/plain'], '[shell] ls (the kernel ended)');
    assert.equal(WIDGET in after, false);
  }
});

test('what has ended, and what is not ours, stays', () => {
  assert.equal(settled({ [ITEM]: { kind: 'tool', status: 'completed' } }), null);
  assert.equal(settled({ [ITEM]: { kind: 'text', text: 'x' } }), null);
  assert.equal(settled({ [WIDGET]: view, 'text/plain': 'IntSlider()' }), null);
  assert.equal(settled({}), null);
});

test('calls that ran in a block have failed; what others printed stays', () => {
  const ran = { version: 1, kind: 'tool', name: 'shell', status: 'completed', note: '' };
  const item = { version: 1, kind: 'block', items: [ran, { ...ran, status: 'running' }] };
  const text = '**shell** `a` (ran)\n\n```\nx (running)\n```\n\n**shell** `b` (running)';
  const after = settled({ [ITEM]: item, 'text/markdown': text, 'text/plain': '[shell] b (running)' });
  assert.deepEqual(after[ITEM].items.map(each => each.status), ['completed', 'failed']);
  assert.equal(after['text/markdown'], text.replace(/\(running\)$/, '(failed, the kernel ended)'));
  assert.equal(after['text/plain'], '[shell] b (failed, the kernel ended)');
  assert.equal(settled({ [ITEM]: { ...item, items: [ran, ran] } }), null);
});

test('what a command printed stays, also where it looks like the first line of a call', () => {
  const printed = '[1] worker (running)\n**db** (running)';
  for (const name of ['shell', 'python (scratch)', 'mcp.x-y?\u00e9']) {
    const item = { version: 1, kind: 'tool', name, status: 'running', output: printed };
    for (const whole of [item, { version: 1, kind: 'block', items: [{ ...item, status: 'failed' }, item] }]) {
      const text = `**${name}** \`jobs\` (running)\n\n\`\`\`\n${printed}\n\`\`\``;
      const after = settled({ [ITEM]: whole, 'text/markdown': text, 'text/plain': `[${name}] (running)\n${printed}` });
      assert.equal(after['text/markdown'], text.replace('(running', '(failed, the kernel ended'));
      assert.equal(after['text/plain'], `[${name}] (failed, the kernel ended)\n${printed}`);
    }
  }
  const same = { version: 1, kind: 'tool', name: 'shell', status: 'running' };
  const text = '[shell] (running)\n[shell] (running)';
  assert.equal(settled({ [ITEM]: same, 'text/plain': text })['text/plain'], text.replace('running', 'failed, the kernel ended'));
});

test('items that are nested without end are settled to some depth', () => {
  let item = { version: 1, kind: 'tool', status: 'running' };
  for (let depth = 0; depth < 50_000; depth++) {
    item = { version: 1, kind: 'block', items: [item] };
  }
  assert.equal(settled({ [ITEM]: item }), null);
});
