/** The commands of the palette and of shortcuts: answer, stop, say more, begin an agent's cell. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { INotebookTracker, NotebookPanel, Output } from '@jupyterlab/notebook';

import type { Run, Work } from '../kernel/work.js';
import { findCell, OPEN_QUESTION } from '../page/elements.js';
import { agentIcon } from '../page/icon.js';
import { trans } from '../text/translation.js';
import { makePrompt } from './failures.js';

export const FIX = 'fix-error';
type Shell = JupyterFrontEnd['shell'];

interface Action {
  label: string;
  caption: string;
  run: () => void;
  /** Whether it has something to act on. */
  applies: () => boolean;
}

/** Add the commands, and return their ids. */
export function addCommands(
  { commands, shell }: JupyterFrontEnd,
  tracker: INotebookTracker,
  work: Work,
  variablesOf: (panel: NotebookPanel) => Promise<string[]>
): string[] {
  const actions = actionsOf(shell, tracker, work, variablesOf);
  return Object.entries(actions).map(([name, { label, caption, run, applies }]) => {
    const id = `agent-magics:${name}`;
    // It has a button in the toolbar of each cell, which shows only where it has failed.
    const inToolbar = name === FIX ? { icon: agentIcon, isVisible: applies } : {};
    commands.addCommand(id, { label, caption, execute: run, isEnabled: applies, ...inToolbar });
    return id;
  });
}

function actionsOf(
  shell: Shell,
  tracker: INotebookTracker,
  work: Work,
  variablesOf: (panel: NotebookPanel) => Promise<string[]>
): { [name: string]: Action } {
  const hasQuestion = (): boolean => work.questions > 0 || document.querySelector(OPEN_QUESTION) !== null;
  const isAtWork = (): boolean => work.runs.some(({ agent }) => agent === '');
  const hasNotebook = (): boolean => tracker.currentWidget !== null;
  return {
    'next-question': {
      label: trans.__('Go to the Next Question'),
      caption: trans.__('Go to the next question that waits for an answer'),
      run: () => goToWork(shell, work),
      applies: hasQuestion
    },
    approve: {
      label: trans.__('Approve the Question'),
      caption: trans.__('Approve the question that has the focus; without one, go to the next'),
      run: () => answer('approve', shell, work),
      applies: hasQuestion
    },
    deny: {
      label: trans.__('Deny the Question'),
      caption: trans.__('Deny the question that has the focus; without one, go to the next'),
      run: () => answer('deny', shell, work),
      applies: hasQuestion
    },
    steer: {
      label: trans.__('Message to the Agent'),
      caption: trans.__('Say something to the agent at work'),
      run: () => inFoot(shell, tracker, work, 'input')?.focus(),
      applies: isAtWork
    },
    stop: {
      label: trans.__('Stop the Agent'),
      caption: trans.__('End the turn of the agent at work'),
      run: () => inFoot(shell, tracker, work, '.am-foot-stop')?.click(),
      applies: isAtWork
    },
    notify: {
      label: trans.__('Notify Me by the System'),
      caption: trans.__('Let the browser notify you when the page is out of sight and an agent needs you'),
      run: () => void Notification.requestPermission(),
      applies: () => 'Notification' in window && Notification.permission === 'default'
    },
    'new-cell': {
      label: trans.__('New Agent Cell'),
      caption: trans.__('Insert an agent cell below'),
      run: () => insertBelow(tracker.currentWidget, '%%agent\n'),
      applies: hasNotebook
    },
    [FIX]: {
      label: trans.__('Explain and Fix the Error'),
      caption: trans.__('Insert an agent cell about the error of the active cell'),
      run: () => {
        const panel = tracker.currentWidget;
        const failed = failedCell(panel);
        if (panel !== null && failed !== null) {
          void variablesOf(panel).then(names => insertBelow(panel, makePrompt(...failed, names)));
        }
      },
      applies: () => failedCell(tracker.currentWidget) !== null
    },
    'to-prompt': {
      label: trans.__('Make the Cell a Prompt'),
      caption: trans.__('Turn the text of the active cell into a prompt'),
      run: () => {
        const cell = tracker.currentWidget?.content.activeCell;
        cell?.model.sharedModel.updateSource(0, 0, '%%agent\n');
      },
      applies: () => {
        const cell = tracker.currentWidget?.content.activeCell?.model.sharedModel;
        return cell?.cell_type === 'code' && !cell.getSource().startsWith('%%');
      }
    }
  };
}

/** Show what waits for the person, or else the agent that has worked for the longest. */
export function goToWork(shell: Shell, work: Work): void {
  const waiting = work.runs.find(run => run.questions > 0) ?? work.runs[0];
  if (waiting !== undefined) {
    goToCell(shell, waiting);
  } else {
    showQuestion(document.querySelector<HTMLElement>(OPEN_QUESTION));
  }
}

/** Show a notebook, and in it the open question of a cell, or else the cell. */
export function goToCell(shell: Shell, { panel, cell }: Pick<Run, 'panel' | 'cell'>): void {
  if (panel.isDisposed) {
    return;
  }
  shell.activateById(panel.id);
  const widget = findCell(panel, cell);
  const question = widget?.node.querySelector<HTMLElement>(OPEN_QUESTION);
  if (question) {
    showQuestion(question);
  } else {
    widget?.node.scrollIntoView({ block: 'nearest' });
  }
}

function showQuestion(question: HTMLElement | null): void {
  question?.scrollIntoView({ block: 'nearest' });
  question?.focus();
}

/** Answer the question in focus: nothing is answered that the person may not be looking at. */
function answer(decision: string, shell: Shell, work: Work): void {
  const question = document.activeElement?.closest(OPEN_QUESTION);
  if (question) {
    question.querySelector<HTMLElement>(`[data-decision=${decision}]`)?.click();
  } else {
    goToWork(shell, work);
  }
}

function inFoot(
  shell: Shell,
  tracker: INotebookTracker,
  work: Work,
  what: string
): HTMLElement | null {
  const runs = work.runs.filter(({ agent }) => agent === ''); // a sub-agent has no foot of its own
  const run = runs.find(each => each.panel === tracker.currentWidget) ?? runs[0];
  if (run === undefined) {
    return null;
  }
  goToCell(shell, run);
  return findCell(run.panel, run.cell)?.node.querySelector<HTMLElement>(`.am-foot ${what}`) ?? null;
}

function insertBelow(panel: NotebookPanel | null, source: string): void {
  if (panel === null || panel.context.model.readOnly) {
    return;
  }
  const { content, context } = panel;
  const index = content.activeCellIndex + 1;
  context.model.sharedModel.insertCell(index, { cell_type: 'code', source });
  content.activeCellIndex = index;
  content.mode = 'edit';
  const cell = content.activeCell;
  const line = source.split('\n').length - 1;
  void cell?.ready.then(() => {
    cell.editor?.setCursorPosition({ line, column: 0 });
    cell.editor?.focus(); // which may be on a button of the cell's toolbar
  });
}

/** The text of the active cell and its error; null where it has none. */
function failedCell(panel: NotebookPanel | null): [string, Output] | null {
  const model = panel?.content.activeCell?.model;
  const outputs = model?.outputs?.toJSON() ?? [];
  const error = outputs.find(output => output.output_type === 'error');
  return model && error ? [model.sharedModel.getSource(), error] : null;
}
