import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PageTools } from '../../lib/kernel/api.js';

const SPEC = { name: 'pick', description: 'Pick a point.', inputSchema: { type: 'object' } };
const CALL = { callId: 'c1', arguments: {}, path: 'a.ipynb' };

async function answer(handler) {
  const tools = new PageTools();
  tools.registerTool(SPEC, handler);
  return tools.call('pick', CALL);
}

test('text, parts and other values become content', async () => {
  const text = value => [{ type: 'input_text', text: value }];
  assert.deepEqual(await answer(() => 'here'), { items: text('here'), success: true });
  assert.deepEqual((await answer(async () => ({ x: 1 }))).items, text('{"x":1}'));
  assert.deepEqual((await answer(() => undefined)).items, text('done'));
  const parts = [{ type: 'input_image', image_url: 'data:image/png;base64,AA==' }];
  assert.deepEqual((await answer(() => parts)).items, parts);
  assert.deepEqual((await answer(() => [1, 2])).items, text('[1,2]'));
});

test('what a handler throws is told', async () => {
  const { items, success } = await answer(() => {
    throw new Error('no chart');
  });
  assert.equal(success, false);
  assert.match(items[0].text, /pick failed: Error: no chart/);
});

test('a tool joins and leaves, and says so', async () => {
  const tools = new PageTools();
  let changes = 0;
  tools.changed.connect(() => changes++);
  const offered = tools.registerTool(SPEC, () => 'here');
  assert.throws(() => tools.registerTool(SPEC, () => 'there'), /a tool named "pick" already/);
  assert.throws(() => tools.registerTool({ ...SPEC, name: 'a b' }, () => ''), /cannot be/);
  offered.dispose();
  assert.equal(changes, 2);
  assert.deepEqual(tools.specs, []);
  assert.equal((await tools.call('pick', CALL)).success, false);
});
