/** What JupyterLab starts: a line to the kernel of each notebook, and what other extensions use. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker, type Json, type NotebookPanel } from '@jupyterlab/notebook';

import { IAgentMagics, PageTools } from './api.js';
import { Link } from './link.js';

export * from './api.js';

/** How a question's widget tells what the person did, where the kernel could not hear it. */
const QUESTION = 'agent-magics-question';

const plugin: JupyterFrontEndPlugin<IAgentMagics> = {
  id: 'agent-magics:link',
  description: 'Lets agents reach the open notebook, and answers reach a busy kernel.',
  autoStart: true,
  requires: [INotebookTracker],
  provides: IAgentMagics,
  activate: (_: unknown, tracker: INotebookTracker): IAgentMagics => {
    const tools = new PageTools();
    const links = new Set<Link>();
    const follow = (panel: NotebookPanel): void => followKernel(panel, tools, links);
    tracker.forEach(follow);
    tracker.widgetAdded.connect((_, panel) => follow(panel));
    document.addEventListener(QUESTION, event => {
      const { kernel, id, content } = (event as CustomEvent).detail as Record<string, Json>;
      for (const link of links) {
        if (!kernel || link.kernelId === kernel) {
          link.answer(String(id), content ?? null);
        }
      }
    });
    // A page that goes says so, where it can: the kernel need not wait for it then.
    window.addEventListener('pagehide', () => links.forEach(link => link.dispose()));
    return tools;
  }
};

/** Keep a link to whichever kernel a notebook has. */
function followKernel(panel: NotebookPanel, tools: PageTools, links: Set<Link>): void {
  let link: Link | null = null;
  const renew = (): void => {
    if (link !== null) {
      links.delete(link);
      link.dispose();
      link = null;
    }
    const kernel = panel.isDisposed ? null : panel.sessionContext.session?.kernel;
    if (kernel) {
      link = new Link(panel, kernel, tools);
      links.add(link);
    }
  };
  panel.sessionContext.kernelChanged.connect(renew);
  panel.disposed.connect(renew);
  renew();
}

export default plugin;
