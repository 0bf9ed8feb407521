/** The line at the foot of a cell whose agent is at work: what it does, a field to say more, Stop. */

import type { Json, NotebookPanel } from '@jupyterlab/notebook';
import { UUID } from '@lumino/coreutils';

import { findCell, make, makeButton, OPEN_QUESTION } from '../page/elements.js';
import { dollars, numeral } from '../text/plain.js';
import { trans } from '../text/translation.js';

interface Queued {
  id: string;
  text: string;
}

/** What the kernel tells of a turn; times are seconds until now. */
export interface FootData {
  cell: string;
  doing: string;
  /** Questions that wait for the person. */
  questions: number;
  phase: number;
  /** Of the call that has run for the longest. */
  call: number | null;
  elapsed: number;
  tokens: number;
  cost: number | null;
  /** Words that the model has not heard yet. */
  said: string[];
  queued: Queued[];
}

/** Seconds after which a call may be slow. */
const SLOW = 30;
const advice = (): string =>
  trans.__(
    'This may take long. Stop ends the turn and the command; a message is read when the call has ended. %1 leaves the notebook free for other cells.',
    '%%agent --background'
  );

const SAFE = ':not(.agm-dangerous)';

type Say = (data: { [key: string]: Json }) => void;

/** A question that can be answered by a click; forms of servers are filled in one by one. */
const OPEN = `${OPEN_QUESTION}:not(.agm-form)`;

/** The feet of one notebook's cells; nothing of them is in the document. */
export class Feet {
  constructor(
    private _panel: NotebookPanel,
    private _say: Say
  ) {}

  /** Draw a cell's foot, or draw it anew. */
  show(data: FootData): void {
    let foot = this._feet.get(data.cell);
    if (foot === undefined || foot.isOver) {
      // What was not sent in an earlier turn stays above, until the person puts it away.
      foot = new Foot(data.cell, this._say);
      this._feet.set(data.cell, foot);
    }
    foot.show(data);
    this._place(data.cell, foot);
  }

  /** The turn has ended; words that were not sent stay until the person puts them away. */
  end(cell: string): void {
    const foot = this._feet.get(cell);
    if (foot === undefined) {
      return;
    }
    const hadFocus = foot.node.contains(document.activeElement);
    if (!foot.end()) {
      foot.remove();
      this._feet.delete(cell);
      if (hadFocus) {
        this._leave();
      }
    }
  }

  /** Give words back that came too late. */
  giveBack(cell: string, text: string): void {
    const foot = this._feet.get(cell) ?? new Foot(cell, this._say);
    this._feet.set(cell, foot);
    foot.giveBack(text);
    this._place(cell, foot);
  }

  /** Put each foot to its cell: one that was moved is drawn anew. */
  place(): void {
    [...this._feet].forEach(([cell, foot]) => this._place(cell, foot));
  }

  /** The turns have ended with the kernel; words that were not sent stay here too. */
  dispose(): void {
    [...this._feet.keys()].forEach(cell => this.end(cell));
    this._feet.clear();
  }

  /** Give the focus back to the notebook. */
  private _leave(): void {
    if (!this._panel.isDisposed) {
      this._panel.content.activate();
    }
  }

  private _place(cell: string, foot: Foot): void {
    const widget = findCell(this._panel, cell);
    if (widget === undefined) {
      foot.remove();
      this._feet.delete(cell);
    } else if (foot.node.parentNode !== widget.node) {
      widget.node.append(foot.node);
    }
  }

  private _feet = new Map<string, Foot>();
}

class Foot {
  readonly node = make('div', 'am-foot');
  isOver = false;

  constructor(
    private _cell: string,
    private _say: Say
  ) {
    this.node.setAttribute('role', 'group');
    this.node.setAttribute('aria-label', trans.__('Agent at work'));
    this._doing.setAttribute('role', 'status');
    this._field.type = 'text';
    this._field.placeholder = trans.__('Add a message: Enter now, Alt+Enter after the answer');
    this._field.setAttribute(
      'aria-label',
      trans.__('Add a message. Enter: now. Alt+Enter: after the answer')
    );
    this._field.addEventListener('keydown', event => this._onKey(event));
    const stop = makeButton(trans.__('Stop'), '', () => this._send('stop', {}));
    stop.classList.add('am-foot-stop');
    const line = make('div', 'am-foot-line');
    line.append(this._doing, this._phase, this._spent);
    const more = make('div', 'am-foot-line');
    more.append(this._field, stop);
    this._bar.append(
      this._asked,
      makeButton('', '', () => this._answerAll('approve')),
      makeButton('', '', () => this._answerAll('deny'))
    );
    this._advice.setAttribute('role', 'status');
    this.node.append(line, this._advice, this._bar, this._queue, more);
    this._timer = setInterval(() => this._count(), 1000);
  }

  show(data: FootData): void {
    this._data = data;
    this._shownAt = performance.now();
    if (this._doing.textContent !== data.doing) {
      this._doing.textContent = data.doing;
    }
    this._count();
    const shown = JSON.stringify([data.said, data.queued]);
    if (shown !== this._shown) {
      this._shown = shown;
      this._drawWaiting(data);
    }
  }

  /** Stop counting; whether words are left that the person may want. */
  end(): boolean {
    clearInterval(this._timer);
    this.isOver = true;
    const left = this._field.value.trim();
    if (left) {
      this.giveBack(left);
    }
    return this._kept.length > 0;
  }

  giveBack(text: string): void {
    clearInterval(this._timer);
    this.isOver = true;
    this._field.value = '';
    const said = trans.__('Not sent, since the agent has ended its turn: %1', text);
    const words = make('p', 'am-foot-left', said);
    words.setAttribute('role', 'status');
    this._kept.push(words);
    this.node.setAttribute('aria-label', trans.__('Words that were not sent'));
    this.node.replaceChildren(...this._kept, makeButton(trans.__('Put away'), '', () => this.remove()));
  }

  remove(): void {
    clearInterval(this._timer);
    this.node.remove();
  }

  private _onKey(event: KeyboardEvent): void {
    const text = this._field.value.trim();
    if (event.key === 'Enter' && !event.isComposing && text) {
      event.preventDefault();
      this._send('say', { id: UUID.uuid4(), text, now: !event.altKey });
      this._field.value = '';
    }
  }

  /** Offer one answer for several questions; what is dangerous is approved one by one. */
  private _drawBar(): void {
    const open = this._open('');
    const safe = this._open(SAFE);
    this._counted = open;
    this._bar.hidden = open.length < 2;
    const others = open.length - safe.length;
    this._asked.textContent = others
      ? trans.__(
          '%1 questions are open, %2 of them dangerous: not approved from here.',
          open.length,
          others
        )
      : trans.__('%1 questions are open.', open.length);
    const [approve, deny] = [...this._bar.querySelectorAll('button')];
    approve.textContent = trans.__('Approve all %1', safe.length);
    approve.disabled = safe.length === 0;
    deny.textContent = trans.__('Deny all %1', open.length);
  }

  private _answerAll(decision: string): void {
    // Of one that has come since, the label says nothing.
    const counted = this._counted;
    const open = this._open(decision === 'approve' ? SAFE : '');
    for (const question of open.filter(each => counted.includes(each))) {
      question.querySelector<HTMLElement>(`[data-decision=${decision}]`)?.click();
    }
    this._drawBar();
  }

  private _open(which: string): HTMLElement[] {
    const cell = this.node.parentElement;
    return cell === null ? [] : [...cell.querySelectorAll<HTMLElement>(OPEN + which)];
  }

  private _send(type: string, fields: { [key: string]: Json }): void {
    this._say({ type, cell: this._cell, ...fields });
  }

  private _count(): void {
    this._drawBar();
    if (this._data === null) {
      return;
    }
    const { phase, call, questions, elapsed, tokens, cost } = this._data;
    const passed = (performance.now() - this._shownAt) / 1000;
    const isSlow = call !== null && questions === 0 && call + passed >= SLOW;
    this._advice.hidden = !isSlow;
    if (isSlow !== (this._advice.textContent !== '')) {
      this._advice.textContent = isSlow ? advice() : '';
    }
    this._phase.textContent = seconds(phase + passed);
    this._spent.textContent = [
      trans.__('%1 in all', seconds(elapsed + passed)),
      tokens ? trans._n('%2 token', '%2 tokens', tokens, numeral(tokens)) : '',
      cost ? dollars(cost) : ''
    ]
      .filter(Boolean)
      .join(' · ');
  }

  private _drawWaiting({ said, queued }: FootData): void {
    if (this._queue.contains(document.activeElement)) {
      this._field.focus(); // else the focus would go with its button
    }
    this._queue.hidden = said.length + queued.length === 0;
    this._queue.replaceChildren(
      ...said.map(text =>
        make('li', 'am-foot-words', trans.__('Sent, read when the running calls end: %1', text))
      ),
      ...queued.map(({ id, text }) => {
        const row = make('li', 'am-foot-queued');
        const remove = makeButton(trans.__('Remove'), text, () => this._send('drop', { id }));
        row.append(make('span', 'am-foot-words', trans.__('Next: %1', text)), remove);
        return row;
      })
    );
  }

  private _doing = make('span', 'am-foot-doing');
  private _phase = make('span', 'am-foot-time');
  private _spent = make('span', 'am-foot-spent');
  private _advice = make('p', 'am-foot-slow');
  private _bar = make('div', 'am-foot-line');
  private _asked = make('span', 'am-foot-doing');
  private _queue = make('ul', 'am-foot-queue');
  private _field = make('input', 'am-field');
  /** The open questions of which the bar speaks. */
  private _counted: HTMLElement[] = [];
  private _kept: HTMLElement[] = [];
  private _data: FootData | null = null;
  private _shown = '';
  private _shownAt = 0;
  private _timer: ReturnType<typeof setInterval>;
}

/** Seconds as people read them: 5 s, 2 min 05 s. */
export function seconds(value: number): string {
  const whole = Math.max(0, Math.floor(value));
  const minutes = Math.floor(whole / 60);
  const rest = (whole % 60).toLocaleString(undefined, { minimumIntegerDigits: minutes ? 2 : 1 });
  return minutes ? trans.__('%1 min %2 s', numeral(minutes), rest) : trans.__('%1 s', rest);
}
