/** The panel beside the notebooks: questions that wait, agents, their helpers, conversations. */

import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import type {
  AgentData,
  Around,
  ConversationData,
  HelperData,
  Place,
  Placed,
  QuestionData
} from '../kernel/around.js';
import { make, makeButton, makeButtons, Rows } from '../page/elements.js';
import { agentIcon } from '../page/icon.js';
import { dollars, numeral } from '../text/plain.js';
import { trans } from '../text/translation.js';

/** Milliseconds for which new questions take no click: it may have been meant for another one. */
const SETTLING = 600;
/** Milliseconds without a key, after which what was typed is looked for. */
const TYPING = 300;

/** What the panel has done elsewhere in the page. */
export interface Surroundings {
  /** Show a notebook, and in it the cell. */
  go(place: Place, cell: string): void;
  /** The notebook in front, where it has agents. */
  current(): Place | null;
  /** Begin or end to look at notebooks that this page does not show. */
  look(looking: boolean): void;
}

export class AgentsPanel extends Widget {
  constructor(
    private _around: Around,
    private _page: Surroundings
  ) {
    super();
    this.id = 'agent-magics-panel';
    this.title.icon = agentIcon as never;
    this.title.caption = trans.__('Agents');
    this.addClass('am-panel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('Agents'));
    this.node.tabIndex = -1;
    this._told.setAttribute('role', 'status');
    this._build();
  }

  /** Give the focus to its first button, or to itself until it has one. */
  enter(): void {
    (this.node.querySelector<HTMLElement>('section:not([hidden]) button') ?? this.node).focus();
  }

  /** Look at the kernels for as long as the panel is seen. */
  protected onAfterShow(_: Message): void {
    this._around.changed.connect(this._show, this);
    this._watch();
    this._page.look(true);
    this._show();
  }

  protected onBeforeHide(_: Message): void {
    this._around.changed.disconnect(this._show, this);
    this._around.watch(null);
    this._page.look(false);
  }

  protected onAfterAttach(message: Message): void {
    if (this.isVisible) {
      this.onAfterShow(message);
    }
  }

  /** Where it goes to another place, it is hidden there without being told so. */
  protected onBeforeDetach(message: Message): void {
    if (this.isVisible) {
      this.onBeforeHide(message);
    }
  }

  /** Have the kernels tell anew; not where the panel was hidden meanwhile. */
  private _watch(): void {
    if (this.isVisible) {
      this._around.watch(this._search.value);
    }
  }

  // -- its parts ----------------------------------------------------------------------------------

  private _build(): void {
    this._search.type = 'search';
    this._search.placeholder = trans.__('Find by words');
    this._search.setAttribute('aria-label', trans.__('Find conversations by words'));
    this._search.addEventListener('input', () => {
      clearTimeout(this._typing);
      this._typing = setTimeout(() => this._watch(), TYPING);
    });
    this.node.append(
      this._told,
      this._empty,
      this._section(this._questionsTitle, this._questions),
      this._section(make('h2', '', trans.__('Agents')), this._agents),
      this._section(make('h2', '', trans.__('Helpers')), this._helpers),
      this._section(make('h2', '', trans.__('Conversations')), this._conversations, this._search),
      this._foot
    );
  }

  private _section(title: HTMLElement, rows: { node: HTMLElement }, ...more: Node[]): HTMLElement {
    const section = make('section', 'am-panel-section');
    rows.node.tabIndex = -1;
    section.append(title, ...more, rows.node);
    return section;
  }

  private _show(): void {
    const { agents, questions, helpers, conversations, more, today, places } = this._around;
    this._questionsTitle.textContent = trans.__('Questions (%1)', numeral(questions.length));
    const placed = (each: Placed<object>): string => simply(each) + this._around.nameOf(each.place);
    if (this._questions.show(questions, placed)) {
      this._settle();
    }
    this._agents.show(agents, placed);
    this._helpers.show(helpers, placed);
    const target = this._target;
    const atWork = new Set(agents.map(({ doing, conversation }) => doing && conversation));
    this._conversations.show(conversations, each =>
      each.id === this._renaming ? '' : simply(each) + (target?.path ?? '') + atWork.has(each.id)
    );
    for (const { node } of [this._questions, this._agents, this._helpers]) {
      node.parentElement!.hidden = node.childElementCount === 0;
      if (node === document.activeElement && node.childElementCount === 0) {
        this.enter(); // the last row has gone with the button that was pressed
      }
    }
    this._empty.hidden = places.length > 0;
    this._empty.textContent = trans.__(
      'No notebook here has an agent yet. Run %1 in one, then a cell that begins with %2.',
      '%load_ext agent_magics',
      '%%agent'
    );
    this._conversations.node.parentElement!.hidden = places.length === 0;
    this._foot.textContent = [
      more > 0 ? trans._n('%2 more; words find it.', '%2 more; words find them.', more, numeral(more)) : '',
      today > 0 ? trans.__('Today: %1', dollars(today)) : ''
    ]
      .filter(Boolean)
      .join(' ');
  }

  /** The notebook that a conversation goes on in. */
  private get _target(): Place | null {
    return this._page.current() ?? this._around.places.find(({ panel }) => panel !== null) ?? null;
  }

  // -- rows ---------------------------------------------------------------------------------------

  private _drawQuestion(question: Placed<QuestionData>, row: HTMLElement): void {
    const about = `${question.tool} ${question.target}`.trim();
    row.classList.toggle('am-dangerous', question.dangerous);
    const where = trans.__('%1 in %2', question.agent, this._around.nameOf(question.place));
    row.append(
      this._title(question.tool || trans.__('A form'), where),
      make('div', 'am-panel-words', question.target)
    );
    if (question.arguments && question.arguments !== question.target) {
      const shown = make('pre', 'am-panel-arguments', question.arguments);
      shown.tabIndex = 0;
      shown.setAttribute('aria-label', trans.__('Arguments of %1', question.tool));
      row.append(shown);
    }
    if (question.ending) {
      row.append(make('pre', 'am-panel-ending', `… ${question.ending}`));
    }
    row.append(make('div', 'am-panel-facts', question.reason));
    const answers = question.choices
      .filter(({ decision }) => ['approve', 'deny', 'abort'].includes(decision))
      .map(({ decision, label }) => {
        const button = makeButton(label, about, () => this._answer(question, decision, button));
        button.dataset.question = question.id;
        return button;
      });
    // As in the cell, what is dangerous does not begin with Approve.
    const ordered = question.dangerous ? [...answers.slice(1), answers[0]] : answers;
    row.append(makeButtons(...ordered, this._goTo(question.place, question.cell, about)));
  }

  private _drawAgent(agent: Placed<AgentData>, row: HTMLElement): void {
    const facts = [
      agent.model,
      countTurns(agent),
      agent.cost === null ? '' : dollars(agent.cost),
      agent.background ? trans.__('in the background') : ''
    ];
    const doing = agent.doing || trans.__('At rest');
    row.append(
      this._title(agent.name, this._around.nameOf(agent.place)),
      make('div', agent.doing ? 'am-panel-words am-at-work' : 'am-panel-words', doing),
      make('div', 'am-panel-facts', facts.filter(Boolean).join(' · '))
    );
    const acts = [this._goTo(agent.place, agent.cell, agent.name)];
    if (agent.cell) {
      const stop = (): boolean => agent.place.line.send({ type: 'stop', cell: agent.cell });
      acts.push(makeButton(trans.__('Stop'), agent.name, stop));
    }
    if (agent.can_fork && agent.turns > 0) {
      acts.push(makeButton(trans.__('Fork'), agent.name, () => void this._run(agent.place, 'fork')));
    }
    row.append(makeButtons(...acts));
  }

  private _drawHelper({ kind, name, state, of, place }: Placed<HelperData>, row: HTMLElement): void {
    const kinds = { agent: trans.__('Sub-agent'), command: trans.__('Command'), server: trans.__('MCP server') };
    row.append(
      this._title(kinds[kind], trans.__('%1 in %2', of, this._around.nameOf(place))),
      make('div', 'am-panel-words', name),
      make('div', 'am-panel-facts', state)
    );
  }

  private _drawConversation(each: ConversationData, row: HTMLElement): void {
    const title = each.title || trans.__('(no prompt yet)');
    const open = this._around.agents.find(({ conversation }) => conversation === each.id);
    const facts = [
      each.notebook.split('/').pop() ?? '',
      new Date(each.ended * 1000).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' }),
      countTurns(each),
      each.cost ? dollars(each.cost) : '',
      each.end === 'completed' || open?.doing ? '' : each.end,
      each.pinned ? trans.__('pinned') : '',
      open ? trans.__('open: %1', open.name) : ''
    ];
    if (each.id === this._renaming) {
      row.append(this._nameField(each, title));
      return;
    }
    row.append(
      make('div', 'am-panel-words', title),
      make('div', 'am-panel-facts', facts.filter(Boolean).join(' · '))
    );
    const target = this._target;
    const act = (label: string, line: string): HTMLButtonElement =>
      makeButton(label, title, () => void this._run(target ?? this._around.places[0], line));
    const acts = [
      makeButton(trans.__('Rename'), title, () => this._rename(each)),
      each.pinned
        ? act(trans.__('Unpin'), `sessions unpin ${each.id}`)
        : act(trans.__('Pin'), `sessions pin ${each.id}`)
    ];
    if (!open && target) {
      const resume = act(trans.__('Resume'), `resume ${each.id}`);
      resume.title = trans.__('Go on with it in %1', this._around.nameOf(target));
      acts.unshift(resume);
    }
    row.append(makeButtons(...acts));
  }

  private _title(name: string, facts: string): HTMLElement {
    const line = make('div', 'am-panel-title');
    line.append(make('strong', '', name), make('span', 'am-panel-facts', facts));
    return line;
  }

  private _goTo(place: Place, cell: string, about: string): HTMLButtonElement {
    return makeButton(trans.__('Show'), about, () => this._page.go(place, cell));
  }

  // -- what is done -------------------------------------------------------------------------------

  private _answer(question: Placed<QuestionData>, decision: string, button: HTMLElement): void {
    if (button.getAttribute('aria-disabled') === 'true') {
      return;
    }
    const { id, place } = question;
    const content = { type: 'answer', id, decision, feedback: '', edited: null };
    if (place.line.send({ type: 'question', id, content })) {
      this._answered.add(id);
    }
    this._settle();
  }

  /** Let the questions take no click for a moment: it may be meant for what stood there before. */
  private _settle(): void {
    const set = (isSettling: boolean): void =>
      this._questions.node.querySelectorAll<HTMLElement>('[data-question]').forEach(button => {
        const isOff = isSettling || this._answered.has(button.dataset.question!);
        button.setAttribute('aria-disabled', String(isOff));
      });
    clearTimeout(this._settling);
    set(true);
    this._settling = setTimeout(() => set(false), SETTLING);
  }

  /** Run a line of `%agent` in a notebook's kernel, and tell what came of it. */
  private async _run(place: Place, line: string): Promise<void> {
    const waits = this._around.agents.some(agent => agent.place === place && agent.doing !== '');
    this._told.textContent = waits
      ? trans.__('Done as soon as the running cell of %1 has ended.', this._around.nameOf(place))
      : '';
    try {
      this._told.textContent = (await place.line.run(line)).replaceAll('`', '');
    } catch (error) {
      this._told.textContent = error instanceof Error ? error.message : String(error);
    }
    this._watch();
  }

  private _rename(each: ConversationData): void {
    this._renaming = each.id;
    this._conversations.redraw(each);
    this._conversations.node.querySelector('input')?.select();
  }

  private _nameField(each: ConversationData, title: string): HTMLInputElement {
    const field = make('input', 'am-field');
    field.value = title;
    field.setAttribute('aria-label', trans.__('Name of the conversation'));
    const end = (name: string): void => {
      this._renaming = '';
      const place = this._target ?? this._around.places[0];
      if (name && name !== title && place) {
        void this._run(place, `sessions rename ${each.id} ${name}`);
      }
      this._conversations.redraw(each);
    };
    field.addEventListener('keydown', event => {
      if (['Enter', 'Escape'].includes(event.key) && !event.isComposing) {
        event.preventDefault(); // else Enter would press the button that gets the focus
        end(event.key === 'Enter' ? field.value.trim() : '');
      }
    });
    return field;
  }

  private _told = make('p', 'am-panel-told');
  private _empty = make('p', 'am-panel-told');
  private _foot = make('p', 'am-panel-facts am-panel-foot');
  private _questionsTitle = make('h2', '');
  private _search = make('input', 'am-field');
  private _questions = new Rows<Placed<QuestionData>>(
    ({ id }) => id,
    (each, row) => this._drawQuestion(each, row)
  );
  private _agents = new Rows<Placed<AgentData>>(
    each => `${each.place.line.kernel.id} ${each.name}`,
    (each, row) => this._drawAgent(each, row)
  );
  private _helpers = new Rows<Placed<HelperData>>(
    each => `${each.place.line.kernel.id} ${each.kind} ${each.of} ${each.name}`,
    (each, row) => this._drawHelper(each, row)
  );
  private _conversations = new Rows<ConversationData>(
    ({ id }) => id,
    (each, row) => this._drawConversation(each, row)
  );
  private _renaming = '';
  private _answered = new Set<string>();
  private _settling: ReturnType<typeof setTimeout> | undefined;
  private _typing: ReturnType<typeof setTimeout> | undefined;
}

/** What is shown of an item, to compare: not where it is, which holds the whole page. */
function simply(item: object): string {
  return JSON.stringify({ ...item, place: undefined });
}

function countTurns({ turns }: AgentData | ConversationData): string {
  return trans._n('%2 turn', '%2 turns', turns, numeral(turns)).replaceAll(' ', '\u00a0');
}
