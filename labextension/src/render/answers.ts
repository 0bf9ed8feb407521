/** Draws answers and what stands beside them: thoughts, sources, notes, plans, pictures, the cost. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { fold, make } from '../page/elements.js';
import { numeral, PICTURES, showHidden } from '../text/plain.js';
import { trans } from '../text/translation.js';
import type {
  NoticeItem,
  PictureItem,
  PlanItem,
  ReasoningItem,
  Source,
  StepStatus,
  TextItem,
  UsageItem
} from './items.js';
import { drawMarkdown } from './markdown.js';

const STEP_ICONS: Record<StepStatus, string> = {
  pending: '☐',
  in_progress: '◐',
  completed: '☑'
};
const STEP_WORDS: Record<StepStatus, () => string> = {
  pending: () => trans.__('to do'),
  in_progress: () => trans.__('in progress'),
  completed: () => trans.__('done')
};

export async function drawText(
  item: TextItem,
  options: IRenderMime.IRendererOptions
): Promise<HTMLElement> {
  const words = await drawMarkdown(item.text, options);
  if (item.sources.length === 0) {
    return words;
  }
  const answer = make('div', 'am-answer');
  answer.append(words, drawSources(item.sources));
  return answer;
}

export async function drawReasoning(
  item: ReasoningItem,
  options: IRenderMime.IRendererOptions,
  key: string
): Promise<HTMLElement> {
  const body = make('div', 'am-body');
  if (item.leftOut > 0) {
    body.append(make('div', 'am-empty', trans.__('… %1 characters left out …', numeral(item.leftOut))));
  }
  body.append(await drawMarkdown(item.text, options));
  const card = fold(key, trans.__('Thinking'), body);
  card.classList.add('am-thoughts');
  return card;
}

function drawSources(sources: Source[]): HTMLElement {
  const box = make('div', 'am-sources');
  const items = make('ul', '');
  for (const { title, url } of sources) {
    const line = make('li', '');
    const words = showHidden(title);
    if (url === '') {
      line.textContent = words;
    } else {
      const link = make('a', '', words || url);
      link.href = link.title = url;
      link.target = '_blank';
      link.rel = 'noopener noreferrer';
      line.append(link);
    }
    items.append(line);
  }
  box.append(make('div', 'am-sources-head', trans.__('Sources')), items);
  return box;
}

export function drawNotice(item: NoticeItem): HTMLElement {
  const level = {
    info: trans.__('Note'),
    warning: trans.__('Warning'),
    error: trans.__('Error')
  }[item.level];
  const notice = make('div', `am-notice am-${item.level}`);
  notice.setAttribute('role', 'note');
  const words = make('span', '');
  words.dir = 'auto';
  const pieces = item.text.split(/`([^`\n]+)`/);
  words.append(...pieces.map((piece, index) => (index % 2 ? make('code', '', piece) : piece)));
  notice.append(make('strong', '', `${level}: `), words);
  return notice;
}

export function drawPlan(item: PlanItem): HTMLElement {
  const done = item.steps.filter(step => step.status === 'completed').length;
  const plan = make('div', 'am-plan');
  plan.setAttribute('role', 'group');
  plan.setAttribute('aria-label', trans.__('Plan, %1 of %2 steps done', done, item.steps.length));
  plan.append(
    make('div', 'am-plan-head', trans.__('Plan · %1 of %2 done', done, item.steps.length))
  );
  if (item.explanation !== '') {
    const why = make('div', 'am-plan-why', item.explanation);
    why.dir = 'auto';
    plan.append(why);
  }
  const steps = make('ul', 'am-steps');
  for (const step of item.steps) {
    const line = make('li', `am-${step.status}`);
    const icon = make('span', 'am-icon', STEP_ICONS[step.status]);
    icon.setAttribute('role', 'img');
    icon.setAttribute('aria-label', STEP_WORDS[step.status]());
    const words = make('span', '', step.description);
    words.dir = 'auto';
    line.append(icon, words);
    if (step.status === 'in_progress') {
      line.setAttribute('aria-current', 'step');
    }
    steps.append(line);
  }
  plan.append(steps);
  return plan;
}

export function drawUsage(item: UsageItem): HTMLElement {
  const part = (count: number, words: string): string => (count > 0 ? ` (${words})` : '');
  const cached = trans.__('%1 cached', numeral(item.cachedTokens));
  const reasoning = trans.__('%1 reasoning', numeral(item.reasoningTokens));
  const facts = [
    trans.__('%1 tokens in', numeral(item.inputTokens)) + part(item.cachedTokens, cached),
    trans.__('%1 out', numeral(item.outputTokens)) + part(item.reasoningTokens, reasoning),
    trans._n('%2 request', '%2 requests', item.requests, numeral(item.requests)),
    item.cost
  ];
  return make('div', 'am-usage', facts.filter(fact => fact !== '').join(' · '));
}

/** JupyterLab's own drawing of a picture leaves out the words for who cannot see it. */
export function drawPicture(item: PictureItem, data: IRenderMime.IMimeModel['data']): HTMLElement {
  const words = showHidden(item.alt);
  const type = PICTURES.find(type => typeof data[type] === 'string');
  if (type === undefined) {
    return make('div', 'am-empty', `[${words}]`);
  }
  const picture = make('img', 'am-picture');
  picture.src = `data:${type};base64,${data[type]}`;
  picture.alt = words;
  return picture;
}
