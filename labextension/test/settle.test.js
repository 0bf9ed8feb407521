import assert from 'node:assert/strict';
import { test } from 'node:test';

import { settled } from '../lib/settle.js';

const ITEM = 'application/vnd.agent-magics.item+json';
const WIDGET = 'application/vnd.jupyter.widget-view+json';
const view = { version_major: 2, version_minor: 0, model_id: 'm' };

test('a question becomes a sentence, in every form', () => {
  const words = 'Question: may shell run? ls $& $1';
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

test('a call that ran has failed, with its live output or without', () => {
  const item = { version: 1, kind: 'tool', status: 'running', note: 'approved by the person' };
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
  const ran = { version: 1, kind: 'tool', status: 'completed', note: '' };
  const item = { version: 1, kind: 'block', items: [ran, { ...ran, status: 'running' }] };
  const text = '**shell** `a` (ran)\n\n```\nx (running)\n```\n\n**shell** `b` (running)';
  const after = settled({ [ITEM]: item, 'text/markdown': text, 'text/plain': '[shell] b (running)' });
  assert.deepEqual(after[ITEM].items.map(each => each.status), ['completed', 'failed']);
  assert.equal(after['text/markdown'], text.replace(/\(running\)$/, '(failed, the kernel ended)'));
  assert.equal(after['text/plain'], '[shell] b (failed, the kernel ended)');
  assert.equal(settled({ [ITEM]: { ...item, items: [ran, ran] } }), null);
});

test('items that are nested without end are settled to some depth', () => {
  let item = { version: 1, kind: 'tool', status: 'running' };
  for (let depth = 0; depth < 50_000; depth++) {
    item = { version: 1, kind: 'block', items: [item] };
  }
  assert.equal(settled({ [ITEM]: item }), null);
});
