/** The agents at work in the notebooks of this page, and how many questions wait for an answer. */

import type { NotebookPanel } from '@jupyterlab/notebook';
import { Signal, type ISignal } from '@lumino/signaling';

import type { FootData } from '../notebook/foot.js';
import { numeral, showHidden } from '../text/plain.js';
import { trans } from '../text/translation.js';

/** Milliseconds of a run after which its end is told; as jupyterlab-notify has it. */
const LONG = 30_000;

/** One cell whose agent is at work. */
export interface Run {
  panel: NotebookPanel;
  cell: string;
  /** A sub-agent that works on though its cell has ended; "" for the cell's own agent. */
  agent: string;
  doing: string;
  questions: number;
  /** When the turn began, in milliseconds of `Date.now`. */
  began: number;
}

/** What is told of a run. */
type Shown = Pick<FootData, 'cell' | 'doing' | 'elapsed'> & Partial<FootData>;

/** What changed: a run was drawn anew, or has ended. */
export interface Change {
  run: Run;
  /** The questions that were open before. */
  before: number;
  ended: boolean;
}

export class Work {
  get changed(): ISignal<this, Change> {
    return this._changed;
  }

  /** The runs, the oldest first. */
  get runs(): Run[] {
    return [...this._runs.values()];
  }

  get questions(): number {
    return this.runs.reduce((sum, { questions }) => sum + questions, 0);
  }

  show(panel: NotebookPanel, data: Shown, agent = ''): void {
    const key = keyOf({ panel, cell: data.cell, agent });
    const before = this._runs.get(key);
    const run = {
      panel,
      cell: data.cell,
      agent,
      doing: data.doing,
      questions: data.questions ?? 0,
      began: before?.began ?? Date.now() - data.elapsed * 1000
    };
    this._runs.set(key, run);
    this._changed.emit({ run, before: before?.questions ?? 0, ended: false });
  }

  end(panel: NotebookPanel, cell: string, agent = ''): void {
    this._remove(this._runs.get(keyOf({ panel, cell, agent })), true);
  }

  /** A notebook was closed, or has another kernel: its runs are not followed any more. */
  leave(panel: NotebookPanel): void {
    this.runs.filter(run => run.panel === panel).forEach(run => this._remove(run, false));
  }

  /** Its questions, if any, do not wait any more. */
  private _remove(run: Run | undefined, ended: boolean): void {
    if (run !== undefined) {
      this._runs.delete(keyOf(run));
      this._changed.emit({ run: { ...run, questions: 0 }, before: run.questions, ended });
    }
  }

  private _runs = new Map<string, Run>();
  private _changed = new Signal<this, Change>(this);
}

/** What tells runs apart: a copy of a notebook has cells of the same ids. */
export function keyOf({ panel, cell, agent }: Pick<Run, 'panel' | 'cell' | 'agent'>): string {
  return `${panel.id} ${cell} ${agent}`;
}

/** The words of the status bar; "" where no agent is at work. */
export function summary(work: Pick<Work, 'runs' | 'questions'>): string {
  const agents = work.runs.length;
  if (agents === 0) {
    return '';
  }
  const running = trans._n('%2 agent at work', '%2 agents at work', agents, numeral(agents));
  const { questions } = work;
  const waiting = trans._n(
    '%2 question waits for you',
    '%2 questions wait for you',
    questions,
    numeral(questions)
  );
  return questions === 0 ? running : `${running} · ${waiting}`;
}

/** What a change is worth telling in words; "" where it is not. */
export function news({ run, before, ended }: Change): string {
  const notebook = showHidden(run.panel.context.path.split('/').pop() ?? '');
  if (ended) {
    return Date.now() - run.began >= LONG
      ? trans.__('The agent in %1 has ended its turn.', notebook) : '';
  }
  return run.questions > before ? trans.__('The agent in %1 waits for your answer.', notebook) : '';
}
