/** Offers to load agent_magics where a cell needs it and the kernel has not loaded it. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { Message, NotebookPanel } from '@jupyterlab/notebook';

import { trans } from '../text/translation.js';

/** What IPython prints about a magic that it does not have. */
const MISSING = /(?:Cell magic `%%agent`|Line magic function `%agent`) not found/;
const LOAD = '%load_ext agent_magics';

/** Watch what a notebook's kernel prints. */
export function offerToLoad(app: JupyterFrontEnd, panel: NotebookPanel): void {
  let shown = '';
  const { iopubMessage } = panel.sessionContext;
  const watch = (_: unknown, { header, content }: Message): void => {
    if (header.msg_type === 'stream' && MISSING.test(String(content.text))) {
      Notification.dismiss(shown);
      const words = trans.__('The kernel of this notebook has not loaded agent_magics.');
      const callback = (): void => void load(app, panel);
      const actions = [{ label: trans.__('Add a Cell That Loads It'), callback }];
      shown = Notification.emit(words, 'warning', { actions, autoClose: false });
    }
  };
  iopubMessage.connect(watch);
  panel.disposed.connect(() => {
    iopubMessage.disconnect(watch); // which may be another view's too
    Notification.dismiss(shown);
  });
}

/** Run a new first cell; the person stays where they are. */
async function load({ commands, shell }: JupyterFrontEnd, panel: NotebookPanel): Promise<void> {
  const { content, context } = panel;
  if (panel.isDisposed || context.model.readOnly) {
    return;
  }
  shell.activateById(panel.id);
  const index = content.activeCellIndex + 1;
  context.model.sharedModel.insertCell(0, { cell_type: 'code', source: LOAD });
  content.activeCellIndex = 0;
  await commands.execute('notebook:run-cell');
  content.activeCellIndex = index;
}
