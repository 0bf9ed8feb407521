// Renders each line of JSON that comes in with the builds of marked that JupyterLab has, and with
// the formulas taken out and put back as JupyterLab does (packages/rendermime/src/latex.ts, BSD-3).
import { createInterface } from 'node:readline';

const folder = process.argv[2];
const builds = {};
for (const name of ['marked-16', 'marked-17']) {
  const { Marked } = await import(`${folder}/${name}/lib/marked.esm.js`);
  builds[name] = new Marked({ gfm: true });
}

const SPLIT =
  /(\$\$?|\\(?:begin|end)\{[a-z]*\*?\}|\\[{}$]|[{}]|(?:\n\s*)+|@@\d+@@|\\\\[()[\]])/i;

function removeMath(text) {
  const math = [];
  let start = null;
  let end = null;
  let last = null;
  let braces = 0;
  let back = t => t;
  if (text.includes('`') || text.includes('~~~')) {
    text = text
      .replace(/~/g, '~T')
      .replace(/^(?<fence>`{3,}|(~T){3,})[^`\n]*\n([\s\S]*?)^\k<fence>`*$/gm, w => w.replace(/\$/g, '~D'))
      .replace(/(^|[^\\])(`+)([^\n]*?[^`\n])\2(?!`)/gm, w => w.replace(/\$/g, '~D'));
    back = t => t.replace(/~([TD])/g, (_, c) => (c === 'T' ? '~' : '$'));
  }
  const blocks = text.replace(/\r\n?/g, '\n').split(SPLIT);
  const take = (i, j) => {
    const block = blocks.slice(i, j + 1).join('');
    for (let k = j; k > i; k--) blocks[k] = '';
    blocks[i] = `@@${math.length}@@`;
    math.push(back(block.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;')));
  };
  for (let i = 1; i < blocks.length; i += 2) {
    const block = blocks[i];
    if (block[0] === '@') {
      blocks[i] = `@@${math.length}@@`;
      math.push(block);
    } else if (start !== null) {
      if (block === end) {
        if (braces) last = i;
        else {
          take(start, i);
          start = end = last = null;
        }
      } else if (block.match(/\n.*\n/)) {
        if (last !== null) {
          take(start, last);
          i = last;
        }
        start = end = last = null;
        braces = 0;
      } else if (block === '{') braces++;
      else if (block === '}' && braces) braces--;
    } else if (block === '$' || block === '$$') {
      [start, end, braces] = [i, block, 0];
    } else if (block === '\\\\(' || block === '\\\\[') {
      [start, end, braces] = [i, block.slice(-1) === '(' ? '\\\\)' : '\\\\]', 0];
    } else if (block.slice(1, 6) === 'begin') {
      [start, end, braces] = [i, '\\end' + block.slice(6), 0];
    }
  }
  if (start !== null && last !== null) take(start, last);
  return [back(blocks.join('')), math];
}

createInterface({ input: process.stdin }).on('line', line => {
  const [text, math] = removeMath(JSON.parse(line));
  const pages = {};
  for (const [name, build] of Object.entries(builds)) {
    pages[name] = build.parse(text).replace(/@@(\d+)@@/g, (_, n) => math[n] ?? '');
  }
  process.stdout.write(JSON.stringify(pages) + '\n');
});
