// The panels, in the order of the page: a line for each.
//
// A panel's module exports
//   title          its name in the list of panels
//   lead           a sentence under its heading (may be left out)
//   needs(models)  null if these models have what it shows, else a sentence that says what is needed
//   show(root, context)
//                  build it in `root`; may return a function that ends it. `context` has `models` (of
//                  /v1/models), `query` (URLSearchParams of the address), `keep({key: value})`, `text`,
//                  `announce(text)` and `signal`, aborted when the panel is left.

import * as generate from "./generate.js";
import * as inside from "./inside.js";
import * as sentence from "./sentence.js";

export const panels = {
  sentence,
  generate,
  inside,
};
