// The list of what was said, one entry per conversation item.

const NAMES = { user: "You", assistant: "Voluble" };

export class Log {
  constructor(list, hint) {
    this.list = list;
    this.hint = hint;
    this.entries = new Map();
  }

  entry(id, role) {
    let entry = this.entries.get(id);
    if (!entry) {
      this.hint?.remove();
      const line = document.createElement("li");
      line.className = role === "user" ? "user" : "agent";
      const who = document.createElement("span");
      who.className = "who";
      who.textContent = NAMES[role] ?? role;
      const words = document.createElement("span");
      line.append(who, words);
      this.list.append(line);
      entry = { line, words };
      this.entries.set(id, entry);
    }
    return entry;
  }

  /** Replaces the text of an item. */
  set(id, role, text, partial = false) {
    const { line, words } = this.entry(id, role);
    words.textContent = text;
    line.classList.toggle("partial", partial);
    this.scroll();
  }

  /** Adds to the text of an item; `partial`: the whole comes later and may differ. */
  add(id, role, delta, partial = false) {
    const { line, words } = this.entry(id, role);
    words.textContent = words.textContent === "…" ? delta : words.textContent + delta;
    line.classList.toggle("partial", partial);
    this.scroll();
  }

  has(id) {
    return this.entries.has(id);
  }

  remove(id) {
    this.entries.get(id)?.line.remove();
    this.entries.delete(id);
  }

  cut(id) {
    this.entries.get(id)?.line.classList.add("cut");
  }

  scroll() {
    this.list.scrollTop = this.list.scrollHeight;
  }
}
