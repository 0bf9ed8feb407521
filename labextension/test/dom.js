// Stands in for the elements of a page, for tests of what draws with them.

/** An element, as far as the marks and feet of cells need one. */
export class Element {
  children = [];
  parentElement = null;
  className = '';
  dataset = {};
  value = '';
  #heard = {};
  #text = '';

  constructor(tag) {
    this.tag = tag;
  }

  get parentNode() {
    return this.parentElement;
  }

  get childElementCount() {
    return this.children.length;
  }

  get textContent() {
    return this.#text + this.children.map(({ textContent }) => textContent).join('');
  }

  set textContent(text) {
    this.replaceChildren();
    this.#text = text;
  }

  get classList() {
    const names = new Set(this.className.split(' ').filter(Boolean));
    const write = () => (this.className = [...names].join(' '));
    return {
      add: name => write(names.add(name)),
      remove: name => write(names.delete(name)),
      contains: name => names.has(name)
    };
  }

  append(...added) {
    for (const each of added) {
      each.remove();
      each.parentElement = this;
      this.children.push(each);
    }
  }

  replaceChildren(...added) {
    this.children.forEach(child => (child.parentElement = null));
    this.children = [];
    this.append(...added);
  }

  remove() {
    const siblings = this.parentElement?.children ?? [];
    siblings.splice(siblings.indexOf(this), 1);
    this.parentElement = null;
  }

  contains(other) {
    return other === this || this.children.some(child => child.contains(other));
  }

  setAttribute() {}

  addEventListener(type, hear) {
    this.#heard[type] = hear;
  }

  click() {
    this.#heard.click?.();
  }

  focus() {
    document.activeElement = this;
  }

  /** Of selectors those with a tag, classes, and one attribute, each also behind `:not`. */
  matches(selector) {
    const parts = selector.match(/:not\([^)]+\)|[.[]?[\w-]+(=\w+)?\]?/g);
    return parts.every(part =>
      part.startsWith(':not') ? !this.matches(part.slice(5, -1)) : this.#isOf(part)
    );
  }

  querySelectorAll(selector) {
    const inside = this.children.flatMap(child => [child, ...child.querySelectorAll('')]);
    return selector === '' ? inside : inside.filter(each => each.matches(selector));
  }

  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  #isOf(part) {
    if (part.startsWith('.')) {
      return this.classList.contains(part.slice(1));
    }
    const [name, value] = part.replace(/^\[data-|\]$/g, '').split('=');
    const given = this.dataset[name];
    return part.startsWith('[') ? given === (value ?? given ?? null) : this.tag === part;
  }
}

globalThis.document = { activeElement: null, createElement: tag => new Element(tag) };
