// Signing in: by a one-time link, or by a token.

import { signIn } from "./api.js";
import { h, setText } from "./dom.js";

export class SignIn {
  constructor(onDone, message = "") {
    this.title = "Sign in";
    this.problem = h("p", { class: "problem", role: "alert" });
    setText(this.problem, message);
    const input = h("input", { type: "password", id: "token", name: "token", autocomplete: "off", spellcheck: "false", required: true, autofocus: true });
    const form = h(
      "form",
      { onsubmit: async (event) => {
        event.preventDefault();
        setText(this.problem, "");
        try {
          await signIn({ token: input.value.trim() });
          onDone();
        } catch (error) {
          setText(this.problem, error.message);
          input.select();
        }
      } },
      h("label", { for: "token" }, "Token"),
      input,
      h("button", { type: "submit", class: "primary" }, "Sign in"),
    );
    this.element = h(
      "main",
      { class: "sign-in", id: "main" },
      h("div", { class: "card" },
        h("h1", {}, h("img", { src: "page/icon.svg", alt: "", width: "32", height: "32" }), "Hocket"),
        h("p", {}, "In a terminal, ", h("code", {}, "hocket open"), " opens this page signed in. Or paste a token:"),
        form,
        this.problem,
        h("p", { class: "muted small" }, "A token of the role read sees jobs, nodes and owners, and changes nothing: ", h("code", {}, "hocket token create wall --role read"))),
    );
  }

  close() {}

  update() {}
}
