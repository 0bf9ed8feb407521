import assert from 'node:assert/strict';
import { test } from 'node:test';

import { takeOutMath } from '../../lib/render/markdown.js';
import {
  codeOf,
  countFiles,
  countLines,
  diffLines,
  prettyArguments,
  scriptOf,
  showInvisible,
  stripAnsi
} from '../../lib/text/plain.js';

test('folders are counted as what they are', () => {
  assert.equal(countFiles(['a']), '1 file');
  assert.equal(countFiles(['made/']), '1 folder');
  assert.equal(countFiles(['a', 'b', 'made/', 'c/d/']), '2 files and 2 folders');
});

test('colours, titles and cursor movements are left out', () => {
  assert.equal(stripAnsi('\x1b[1;31mred\x1b[0m \x1b]0;title\x07end\x1b(B'), 'red end');
});

test('a progress bar keeps its last state, and CRLF is a line end', () => {
  assert.equal(stripAnsi('10%\r50%\r100%\r\ndone\r\n'), '100%\ndone\n');
});

test('what cannot be seen is written out, line ends and tabs stay', () => {
  const shown = 'a⟨U+202E⟩b⟨U+200B⟩\t\n⟨U+0007⟩';
  assert.equal(showInvisible('a\u202Eb\u200B\t\n\u0007'), shown);
  assert.equal(showInvisible('\u{E0041}\u3164'), '⟨U+E0041⟩⟨U+3164⟩');
  assert.equal(showInvisible('grüße 漢字 🙂'), 'grüße 漢字 🙂');
});

test('lines are counted as a reader counts them', () => {
  assert.deepEqual(['', 'a', 'a\n', 'a\nb'].map(countLines), [0, 1, 1, 2]);
});

test('arguments that are JSON get one line per field, others stay', () => {
  assert.equal(prettyArguments('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(prettyArguments('print(1)'), 'print(1)');
});

test('arguments are laid out as JSON is, and keep each digit and each name', () => {
  const values = [{}, [], { a: [], b: {} }, { a: [1, [2, { c: null }]], 'é"\\': 'x\n{[,:' }, 7, 'a', [[[]]]];
  for (const value of values) {
    assert.equal(prettyArguments(JSON.stringify(value)), JSON.stringify(value, null, 2));
    assert.equal(prettyArguments(JSON.stringify(value, null, 4)), JSON.stringify(value, null, 2));
  }
  const written = '{"id":1234567890123456789,"x":1.0,"path":"a","path":"b","\\u00e9":1e400}';
  const shown = '{\n  "id": 1234567890123456789,\n  "x": 1.0,\n  "path": "a",\n  "path": "b",\n  "é": 1e400\n}';
  assert.equal(prettyArguments(written), shown);
});

test('the code of a call stands apart from its other arguments', () => {
  assert.deepEqual(codeOf('{"code":"x"}'), { code: 'x', rest: '' });
  assert.deepEqual(codeOf('{"where":"scratch","code":"x"}'), {
    code: 'x',
    rest: '{"where":"scratch"}'
  });
  const others = '{"seed":1234567890123456789,"in":{"code":[1,{"code":"y"}]}}';
  assert.deepEqual(codeOf(`{ "code": "x\\n", ${others.slice(1)}`), { code: 'x\n', rest: others });
  const none = ['{"code":1}', '{"code":["x"]}', '{"code":"a","code":"b"}', '["code","x"]', '{}'];
  for (const args of [...none, '{"a":{"code":"x"}}', 'print(1)', 'null', '"code"']) {
    assert.equal(codeOf(args), null, args);
  }
});

test('the script of a command is what its shell runs', () => {
  const script = args => scriptOf(JSON.stringify(args));
  assert.equal(script({ command: ['bash', '-lc', 'ls | wc'] }), 'ls | wc');
  assert.equal(script({ command: ['/bin/sh', '-c', 'ls'], timeout_ms: 9 }), 'ls');
  assert.equal(script({ cmd: 'make test' }), 'make test');
  assert.equal(script({ command: 'make' }), 'make');
  const others = [['ls', '-c', 'x'], ['python', '-c', 'x'], ['bash', '-c', 'x', 'y'], ['bash'], [], 1, null];
  assert.deepEqual(new Set(others.map(command => script({ command }))), new Set(['']));
  assert.equal(scriptOf('{'), '');
  assert.equal(scriptOf('null'), '');
});

test('a removed line of dashes is no file head', () => {
  const first = '--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- y\n+++ z\n w\n';
  const diff = `${first}--- a/v\n+++ b/v\n@@ -1 +1 @@\n-o\n+n\n`;
  const kinds = diffLines(diff).map(line => line.kind);
  const file = ['head', 'head', 'head'];
  assert.deepEqual(kinds, [...file, 'remove', 'add', 'same', ...file, 'remove', 'add']);
});

test('diagrams are code, also where the word is hidden', () => {
  for (const word of ['mermaid', 'mer\uE000maid', ' Mermaid x']) {
    assert.match(takeOutMath(`\`\`\`${word}\nA\n\`\`\``)[0], /^```\s*text/);
  }
});

test('formulas stand aside, dollars in code and in prices do not', () => {
  const [text, math] = takeOutMath('$a_b$ `$x$` costs $5 and $6, \\(y\\)\n```\n$z$\n```\n$$w$$');
  assert.deepEqual(math, ['$a_b$', '\\(y\\)', '$$w$$']);
  assert.deepEqual(takeOutMath('$\\{1, 2\\}$ and $\\|x\\|$, \\$5 and \\$6')[1], [
    '$\\{1, 2\\}$',
    '$\\|x\\|$'
  ]);
  const code = '````python\n```\n$$a$$\n````';
  assert.deepEqual(takeOutMath(code), [code, []]);
  assert.deepEqual(takeOutMath('~~~\n```\n$a$\n~~~\n$b$')[1], ['$b$']);
  assert.match(text, /`\$x\$` costs \$5 and \$6, .+\n```\n\$z\$\n```\n/);
});
