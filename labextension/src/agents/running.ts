/** The agents at work as a section of JupyterLab's list of what runs. */

import type { IRunningItem, IRunningSessionManagers } from '@jupyterlab/running';

import type { Run, Work } from '../kernel/work.js';
import { agentIcon } from '../page/icon.js';
import { showHidden } from '../text/plain.js';
import { trans } from '../text/translation.js';

/**
 * @param go - shows the cell of a run.
 * @param stop - ends the turn of a run.
 */
export function addRunning(
  managers: IRunningSessionManagers,
  work: Work,
  go: (run: Run) => void,
  stop: (run: Run) => void
): void {
  const item = (run: Run): IRunningItem => ({
    open: () => go(run),
    shutdown: () => stop(run),
    icon: () => agentIcon,
    label: () => showHidden(run.panel.context.path.split('/').pop() ?? ''),
    labelTitle: () => run.panel.context.path,
    detail: () => run.doing
  });
  managers.add({
    name: trans.__('Agents'),
    running: () => work.runs.map(item),
    shutdownAll: () => work.runs.forEach(stop),
    refreshRunning: () => undefined,
    runningChanged: work.changed,
    shutdownLabel: trans.__('Stop'),
    shutdownAllLabel: trans.__('Stop All'),
    shutdownAllConfirmationText: trans.__('Stop all agents at work in this page?')
  });
}
