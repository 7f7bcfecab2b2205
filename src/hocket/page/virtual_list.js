// A list of any length, of which only the rows in sight are elements.

import { h } from "./dom.js";

const OVERSCAN = 3;

/** `make` gives a row's element; `update` shows an item in it, at this index. */
export class VirtualList {
  constructor({ rowHeight, make, update, properties = {} }) {
    this.items = [];
    this._rowHeight = rowHeight;
    this._make = make;
    this._update = update;
    this._rows = []; // elements, one for each row in sight
    this._body = h("div", { class: "virtual-body", role: "presentation" });
    this.element = h("div", { class: "virtual", ...properties }, this._body);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this._resized = new ResizeObserver(() => this.draw());
    this._resized.observe(this.element);
  }

  close() {
    this._resized.disconnect();
  }

  get rowHeight() {
    return typeof this._rowHeight === "function" ? this._rowHeight() : this._rowHeight;
  }

  set(items) {
    this.items = items;
    this.draw();
  }

  /** Scrolls until a row is in sight. */
  reveal(index) {
    const [top, height] = [index * this.rowHeight, this.rowHeight];
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + height > scrollTop + clientHeight) this.element.scrollTop = top + height - clientHeight;
    this.draw();
  }

  isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    return scrollTop + clientHeight >= scrollHeight - 2 * this.rowHeight;
  }

  toEnd() {
    this.draw();
    this.element.scrollTop = this.element.scrollHeight;
    this.draw();
  }

  draw() {
    const height = this.rowHeight;
    const { scrollTop, clientHeight } = this.element; // Read first: after a change the browser would lay out the page for it.
    const first = Math.max(0, Math.floor(scrollTop / height) - OVERSCAN);
    const last = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / height) + OVERSCAN);
    const many = Math.max(0, last - first);
    if (this._total !== this.items.length * height) {
      this._total = this.items.length * height;
      this._body.style.height = `${this._total}px`;
    }
    while (this._rows.length < many) {
      const row = this._make();
      this._rows.push(row);
      this._body.append(row);
    }
    while (this._rows.length > many) this._rows.pop().remove();
    // A row keeps its element while it is in sight, and with it the focus: index n has element n modulo their number.
    for (let index = first; index < last; index++) {
      const row = this._rows[index % many];
      if (row.top !== index * height || row.rowHeight !== height) {
        [row.top, row.rowHeight] = [index * height, height];
        row.style.transform = `translateY(${row.top}px)`;
        row.style.height = `${height}px`;
      }
      this._update(row, this.items[index], index);
    }
  }
}
