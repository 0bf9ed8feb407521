/** What JupyterLab starts: a line to each notebook's kernel, commands, status, notifications. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IEditorExtensionRegistry, IEditorLanguageRegistry } from '@jupyterlab/codemirror';
import { ICompletionProviderManager } from '@jupyterlab/completer';
import { INotebookTracker, type Json, type NotebookPanel } from '@jupyterlab/notebook';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { callAttention } from './agents/attention.js';
import { addCommands, FIX, goToCell, goToWork } from './agents/commands.js';
import { offerToLoad } from './agents/loading.js';
import { AgentsPanel } from './agents/panel.js';
import { addRunning } from './agents/running.js';
import { StatusItem } from './agents/status.js';
import { IAgentMagics, PageTools } from './kernel/api.js';
import { Around, type Place } from './kernel/around.js';
import { Elsewhere } from './kernel/elsewhere.js';
import { Link } from './kernel/link.js';
import { type Run, Work } from './kernel/work.js';
import { saveWords, settleAll } from './notebook/settle.js';
import { keepPlace } from './page/focus.js';
import { keepKeys } from './page/keys.js';
import { holdPresses } from './page/presses.js';
import { Bar } from './prompts/bar.js';
import { PromptCompleter } from './prompts/completion.js';
import { showProse } from './prompts/prose.js';
import { STOP_AGENT } from './render/calls.js';
import { CHANGES } from './render/changes.js';
import { trans, translate } from './text/translation.js';

export * from './kernel/api.js';

/** How a question's widget tells what the person did, where the kernel could not hear it. */
const QUESTION = 'agent-magics-question';

const COMPLETE = 'completer:invoke-notebook';

/** The runs of all notebooks in this page, and the lines to their kernels. */
const work = new Work();
const links = new Set<Link>();
/** What the person has set in the settings editor. */
let personal: { [name: string]: Json } = {};
/** What their kernels tell, and those of other notebooks. */
const around = new Around();

const link: JupyterFrontEndPlugin<IAgentMagics> = {
  id: 'agent-magics:link',
  description: 'Lets agents reach the open notebook, and answers reach a busy kernel.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ITranslator],
  provides: IAgentMagics,
  activate: (
    _: JupyterFrontEnd,
    tracker: INotebookTracker,
    translator: ITranslator | null
  ): IAgentMagics => {
    translate((translator ?? nullTranslator).load('agent_magics')); // the other plugins come later
    const tools = new PageTools();
    const follow = (panel: NotebookPanel): void => followKernel(panel, tools);
    keepPlace(tracker);
    keepKeys(tracker);
    tracker.forEach(follow);
    tracker.widgetAdded.connect((_, panel) => follow(panel));
    holdPresses();
    document.addEventListener(QUESTION, event => {
      const { kernel, id, content } = (event as CustomEvent).detail as Record<string, Json>;
      for (const link of links) {
        if ((!kernel || link.kernelId === kernel) && link.answer(String(id), content ?? null)) {
          event.preventDefault(); // it has a way to the kernel
        }
      }
    });
    document.addEventListener(CHANGES, event => {
      links.forEach(link => void link.reviews.draw(event.target as HTMLElement));
    });
    document.addEventListener(STOP_AGENT, event => {
      stopAgent(String((event as CustomEvent).detail));
    });
    // A page that goes says so, where it can: the kernel need not wait for it then.
    window.addEventListener('pagehide', () => links.forEach(link => link.dispose()));
    return tools;
  }
};

const commands: JupyterFrontEndPlugin<void> = {
  id: 'agent-magics:commands',
  description: 'Commands, shortcuts, the status bar and notifications of agents.',
  autoStart: true,
  requires: [INotebookTracker, IAgentMagics],
  optional: [ICommandPalette, IStatusBar],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    _: IAgentMagics,
    palette: ICommandPalette | null,
    bar: IStatusBar | null
  ): void => {
    for (const command of addCommands(app, tracker, work, variablesOf)) {
      palette?.addItem({ command, category: trans.__('Agent') });
    }
    const watch = (panel: NotebookPanel): void => {
      offerToLoad(app, panel);
      panel.sessionContext.iopubMessage.connect((_, { header }) => {
        if (['error', 'execute_input'].includes(header.msg_type)) {
          setTimeout(() => app.commands.notifyCommandChanged(`agent-magics:${FIX}`));
        }
      });
    };
    tracker.forEach(watch);
    tracker.widgetAdded.connect((_, panel) => watch(panel));
    work.changed.connect(() => app.commands.notifyCommandChanged());
    bar?.registerStatusItem('agent-magics:status', {
      item: new StatusItem(work, () => goToWork(app.shell, work)),
      align: 'left',
      isActive: () => work.runs.length > 0,
      activeStateChanged: work.changed
    });
    callAttention(work, run => goToCell(app.shell, run));
  }
};

const settings: JupyterFrontEndPlugin<void> = {
  id: 'agent-magics:settings',
  description: 'Settings of agents in the settings editor; each page reports them to its kernels.',
  autoStart: true,
  requires: [ISettingRegistry],
  activate: async (_: JupyterFrontEnd, registry: ISettingRegistry): Promise<void> => {
    const loaded = await registry.load(settings.id);
    const report = (): void => {
      personal = loaded.user;
      links.forEach(link => link.sendSettings());
    };
    loaded.changed.connect(report);
    report();
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: 'agent-magics:panel',
  description: 'The panel of agents and conversations, and the agents in the list of what runs.',
  autoStart: true,
  requires: [INotebookTracker, IAgentMagics],
  optional: [ICommandPalette, IRunningSessionManagers],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    _: IAgentMagics,
    palette: ICommandPalette | null,
    running: IRunningSessionManagers | null
  ): void => {
    const placeOf = (panel: NotebookPanel | null): Place | null =>
      around.places.find(place => place.panel !== null && place.panel === panel) ?? null;
    const isOpen = (kernel: string): boolean =>
      tracker.find(({ sessionContext }) => sessionContext.session?.kernel?.id === kernel) !== undefined;
    const elsewhere = new Elsewhere(app.serviceManager, around, isOpen);
    const widget = new AgentsPanel(around, {
      go: ({ panel, path }, cell) =>
        panel === null
          ? void app.commands.execute('docmanager:open', { path })
          : goToCell(app.shell, { panel, cell }),
      current: () => placeOf(tracker.currentWidget),
      look: looking => elsewhere.look(looking)
    });
    app.shell.add(widget, 'right', { rank: 900 });
    const command = 'agent-magics:panel';
    app.commands.addCommand(command, {
      label: trans.__('Show the Agents'),
      caption: trans.__('Show the panel of agents, questions and conversations'),
      execute: () => {
        app.shell.activateById(widget.id);
        widget.enter();
      },
      isEnabled: () => true
    });
    palette?.addItem({ command, category: trans.__('Agent') });
    if (running !== null) {
      const stop = ({ panel, cell, agent }: Run): unknown =>
        agent === ''
          ? placeOf(panel)?.line.send({ type: 'stop', cell })
          : stopAgent(agent);
      addRunning(running, work, run => goToCell(app.shell, run), stop);
    }
  }
};

const prompts: JupyterFrontEndPlugin<void> = {
  id: 'agent-magics:prompts',
  description: 'Shows the prompts of agent cells as prose, and completes what they mention.',
  autoStart: true,
  requires: [IEditorExtensionRegistry, IEditorLanguageRegistry],
  optional: [ICompletionProviderManager],
  activate: (
    app: JupyterFrontEnd,
    registry: IEditorExtensionRegistry,
    languages: IEditorLanguageRegistry,
    completion: ICompletionProviderManager | null
  ): void => {
    completion?.registerProvider(
      new PromptCompleter(widget => [...links].find(link => link.panel === widget))
    );
    const mention = (): void => {
      if (completion !== null && app.commands.hasCommand(COMPLETE)) {
        void app.commands.execute(COMPLETE);
      }
    };
    showProse(registry, languages, mention, model =>
      [...links].find(({ panel }) =>
        panel.content.widgets.some(cell => (cell.model as object) === model)
      )
    );
  }
};

const bar: JupyterFrontEndPlugin<void> = {
  id: 'agent-magics:bar',
  description: 'Shows the options of the active agent cell in a bar that writes them.',
  autoStart: true,
  requires: [INotebookTracker, ISettingRegistry, IAgentMagics],
  activate: async (
    _: JupyterFrontEnd,
    tracker: INotebookTracker,
    registry: ISettingRegistry
  ): Promise<void> => {
    const loaded = await registry.load(bar.id);
    const { schema } = await registry.load(settings.id);
    const bars = new Set<Bar>();
    const add = (panel: NotebookPanel): void => {
      const made = new Bar(
        panel,
        () => [...links].find(link => link.panel === panel),
        () => loaded.composite.bar === true,
        schema.properties?.approval?.enum ?? []
      );
      bars.add(made);
      panel.disposed.connect(() => bars.delete(made));
    };
    tracker.forEach(add);
    tracker.widgetAdded.connect((_, panel) => add(panel));
    loaded.changed.connect(() => bars.forEach(each => each.update()));
  }
};

/** Stop a sub-agent; the kernels of other notebooks do not know it. */
function stopAgent(id: string): void {
  links.forEach(link => void link.ask('stop_agent', { id }));
}

/** The names of the variables in a notebook's kernel, as a prompt can show them. */
async function variablesOf(panel: NotebookPanel): Promise<string[]> {
  const code = '%%agent\n{{';
  const link = [...links].find(each => each.panel === panel);
  const answer = await link?.ask('complete', { code, offset: code.length });
  const found = (answer as { found?: [string, string][] } | null | undefined)?.found;
  return (found ?? []).map(([name]) => name);
}

/** Keep a link to whichever kernel a notebook has. */
function followKernel(panel: NotebookPanel, tools: PageTools): void {
  let link: Link | null = null;
  const renew = (): void => {
    if (link !== null) {
      links.delete(link);
      link.dispose();
      link = null;
      if (!panel.isDisposed) {
        settleAll(panel);
      }
    }
    const kernel = panel.isDisposed ? null : panel.sessionContext.session?.kernel;
    if (kernel) {
      link = new Link(panel, kernel, tools, work, around, () => personal);
      links.add(link);
    }
  };
  saveWords(panel);
  panel.sessionContext.kernelChanged.connect(renew);
  panel.disposed.connect(renew);
  renew();
}

export default [link, commands, prompts, bar, settings, panel];
