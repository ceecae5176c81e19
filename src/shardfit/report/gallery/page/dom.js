// Elements made from names, properties and children. Text becomes text nodes only, so no data is ever read as markup.

export function el(what, properties = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

export const byId = (id) => document.getElementById(id);

export function picker(label, options, chosen, onPick) {
  const select = el("select", { onchange: () => onPick(select.value), ariaLabel: label });
  for (const [value, text] of options) select.append(el("option", { value, textContent: text }));
  select.value = chosen;
  return el("label.picker", {}, el("span", { textContent: label }), select);
}

// the last call of a burst, once it has been quiet for a while
export function settled(milliseconds, action) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}
