/** The model's Markdown as DOM that can do nothing: no scripts, styles, controls or requests. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { trans } from '../text/translation.js';

// JupyterLab's sanitizer leaves buttons that run commands, inputs, and styles that can lay a
// picture over the Approve button. Markdown needs none of these: only what is listed stays.
const TAGS = new Set(
  (
    'a blockquote br code del div em h1 h2 h3 h4 h5 h6 hr img li ol p pre s span strong sub sup ' +
    'table tbody td th thead tr ul'
  ).split(' ')
);
/** Each of these runs from right to left where its own words do. */
const OWN_WAY = new Set('blockquote h1 h2 h3 h4 h5 h6 li p td th'.split(' '));
const LINK = /^(https?:\/\/|mailto:)/i;
const INLINE_IMAGE = /^data:image\/(png|jpeg|gif|webp|svg\+xml)[;,]/i;
// Classes of the syntax highlighter; any other could imitate the page.
const CLASS = /^(ͼ|cm-|language-)/;
// A diagram loads the pictures that it names while it is drawn: it is shown as code.
const INFO = /(?:`{3}|~{3})[^\n]*/g;
const DIAGRAM = /mermaid/gi;
// Macros that make links, styles and elements, change what later formulas mean, or lie over what is
// beside them; the same ones as in render/formulas.py.
const ACTS = new RegExp(
  '\\\\(?:href|url|class|cssId|style|data|html\\w*|require|include\\w*|bbox|enclose|texttip|mmlToken' +
    '|action\\w*|unicode|char|catcode|csname|[gex]?def|let|futurelet|\\w*newcommand|providecommand' +
    '|\\w*newenvironment|Newextarrow|Declare\\w+|definecolor|\\w*newtagform|usetagform|mathtoolsset' +
    '|newcolumntype|smash|\\w*[rlc]lap|f?colorbox|mathtip|tip|toggle)(?![a-zA-Z])'
);
// Lengths, of which there and here only so much is typeset as does not lie over what is beside it.
const LENGTH =
  /(?:\\[a-zA-Z]+|[{[])\s*[-+]?(\d+(?:[.,]\d*)?|[.,]\d+)\s*(em|ex|px|pt|pc|in|cm|mm|mu|bp|dd|cc)(?![a-zA-Z])/g;
const QUADS = /\\(qq|q)uad(?![a-zA-Z])/g;
const EMS: Record<string, number> = {
  em: 1, ex: 0.43, px: 0.063, pt: 0.1, pc: 1.2, in: 7.3, cm: 2.9, mm: 0.29, mu: 0.056, bp: 0.1,
  dd: 0.11, cc: 1.3
}; // prettier-ignore
const MOST_EMS = 40;

// Code first, so that a dollar sign in code is not taken for mathematics. Formulas are as long at most
// as in render/formulas.py: to look for the end of each in all of a text would take long.
const FENCE = /^ {0,3}(?<fence>`{3,}|~{3,})/;
const DISPLAY = /\$\$[^$]{1,4000}\$\$|\\\[[\s\S]{1,4000}?\\\]/;
const INLINE =
  /\\\([\s\S]{1,1000}?\\\)|\$(?![\s$])(?:\\.|[^$\n\\]){0,1000}?(?:\\\S|[^\s\\$])\$(?!\d)/;
const CODE_OR_MATH = new RegExp(
  `${FENCE.source}|(?<ticks>\`+)|(?<math>${DISPLAY.source}|${INLINE.source})`,
  'gm'
);
const OPEN = '\uE000';
const CLOSE = '\uE001';

/** Draw `source` into a new element; without a Markdown parser the source itself is shown. */
export async function drawMarkdown(
  source: string,
  options: IRenderMime.IRendererOptions
): Promise<HTMLElement> {
  const host = document.createElement('div');
  if (!options.markdownParser) {
    host.className = 'am-plain';
    host.textContent = source;
    return host;
  }
  // The class brings JupyterLab's own typography for Markdown.
  host.className = 'am-text jp-RenderedHTMLCommon';
  const [text, math] = takeOutMath(source);
  const html = await options.markdownParser.render(text);
  // A template's content is inert: nothing in it is fetched or run before it has been pruned.
  const template = document.createElement('template');
  template.innerHTML = options.sanitizer.sanitize(html);
  prune(template.content);
  putBackMath(template.content, math);
  host.append(template.content);
  return host;
}

/** Markdown would eat the backslashes and underscores of formulas, so they stand aside. */
export function takeOutMath(source: string): [string, string[]] {
  const clean = source
    .replace(/[\uE000\uE001]/g, '')
    .replace(INFO, info => info.replace(DIAGRAM, 'text'));
  const spans = spanEnds(clean);
  const find = new RegExp(CODE_OR_MATH);
  const math: string[] = [];
  let text = '';
  let taken = 0;
  for (let found; (found = find.exec(clean)) !== null; ) {
    const { fence, ticks, math: formula } = found.groups!;
    if (fence) {
      find.lastIndex = fenceEnd(clean, fence, find.lastIndex);
    } else if (ticks) {
      find.lastIndex = spans.get(found.index) ?? find.lastIndex;
    } else {
      text += `${clean.slice(taken, found.index)}${OPEN}${math.push(formula!) - 1}${CLOSE}`;
      taken = find.lastIndex;
    }
  }
  return [text + clean.slice(taken), math];
}

/** Where a block of code ends that begins with this fence before `from`. */
function fenceEnd(text: string, fence: string, from: number): number {
  const close = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[\`~]*[ \t]*$`, 'gm');
  close.lastIndex = from;
  return close.exec(text) === null ? text.length : close.lastIndex;
}

/** Where the span of code ends that each run of back-ticks begins: behind the next one as long. */
function spanEnds(text: string): Map<number, number> {
  const ends = new Map<number, number>();
  const next = new Map<number, number>();
  for (const { 0: ticks, index } of [...text.matchAll(/`+/g)].reverse()) {
    const end = next.get(ticks.length);
    if (end !== undefined) {
      ends.set(index, end);
    }
    next.set(ticks.length, index + ticks.length);
  }
  return ends;
}

/** Each formula gets an element of its own: only these are typeset, never "$5 and $6". */
function putBackMath(root: DocumentFragment, math: string[]): void {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const texts: Text[] = [];
  while (walker.nextNode()) {
    texts.push(walker.currentNode as Text);
  }
  for (const node of texts) {
    const pieces = node.data.split(/\uE000(\d+)\uE001/);
    if (pieces.length > 1) {
      node.replaceWith(
        ...pieces.map((piece, index) => (index % 2 ? drawMath(math[Number(piece)]) : piece))
      );
    }
  }
}

function drawMath(formula = ''): HTMLElement {
  const acts = ACTS.test(formula) || ems(formula) > MOST_EMS;
  const element = document.createElement(acts ? 'code' : 'span');
  element.className = acts ? '' : 'am-math';
  element.textContent = formula;
  return element;
}

function ems(formula: string): number {
  let sum = 0;
  for (const [, count, unit] of formula.matchAll(LENGTH)) {
    sum += Number(count.replace(',', '.')) * EMS[unit];
  }
  for (const [, quads] of formula.matchAll(QUADS)) {
    sum += quads.length;
  }
  return sum;
}

function prune(root: DocumentFragment): void {
  for (const element of root.querySelectorAll('*')) {
    const tag = element.localName;
    if (tag === 'input') {
      element.replaceWith(element.hasAttribute('checked') ? '☑ ' : '☐ ');
    } else if (tag === 'img' && !INLINE_IMAGE.test(element.getAttribute('src') ?? '')) {
      element.replaceWith(trans.__('[image: %1]', element.getAttribute('alt') || trans.__('not loaded')));
    } else if (tag === 'a' && !LINK.test(element.getAttribute('href') ?? '')) {
      element.replaceWith(...element.childNodes);
    } else if (!TAGS.has(tag)) {
      element.replaceWith(...element.childNodes);
    } else {
      pruneAttributes(element);
      if (OWN_WAY.has(tag)) {
        element.setAttribute('dir', 'auto');
      }
    }
  }
}

function pruneAttributes(element: Element): void {
  const kept: Record<string, string> = {};
  for (const name of ['align', 'start', 'alt']) {
    const value = element.getAttribute(name);
    if (value !== null) {
      kept[name] = value;
    }
  }
  if (element.localName === 'img') {
    kept.src = element.getAttribute('src')!;
  }
  if (element.localName === 'a') {
    kept.href = element.getAttribute('href')!;
    kept.title = kept.href;
    kept.target = '_blank';
    kept.rel = 'noopener noreferrer';
  }
  const classes = [...element.classList].filter(name => CLASS.test(name));
  if (classes.length > 0) {
    kept.class = classes.join(' ');
  }
  for (const name of element.getAttributeNames()) {
    element.removeAttribute(name);
  }
  for (const [name, value] of Object.entries(kept)) {
    element.setAttribute(name, value);
  }
}
