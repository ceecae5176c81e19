// What every page must keep to, looked up in the page as it is drawn; returns what breaks a rule, in words.
(() => {
  const CONTRAST = 4.5; // WCAG AA, text of usual size
  const LONGEST = 14; // characters of a number on a card
  const broken = [];

  const parts = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, under) => {
    const mix = (c) => top[c] * top.a + under[c] * (1 - top.a);
    return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 };
  };
  const light = ({ r, g, b }) => {
    const linear = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.push(parts(getComputedStyle(each).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), { r: 255, g: 255, b: 255, a: 1 });
  };
  const contrast = (element) => {
    const style = getComputedStyle(element);
    const colour = parts(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    for (let each = element; each; each = each.parentElement) colour.a *= parseFloat(getComputedStyle(each).opacity);
    const [low, high] = [light(ground(element)), light(over(colour, ground(element)))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };

  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) broken.push(`the page is ${wide} pixels wide, its window ${innerWidth}`);
  if (document.querySelectorAll("h1").length !== 1) broken.push("it has not one h1");
  if (!document.title.endsWith("shardfit")) broken.push(`it is called ${document.title}`);
  for (const image of document.querySelectorAll("img")) if (!image.alt) broken.push("a picture has no text");
  for (const value of document.querySelectorAll(".card .value"))
    if (/^[-−\d.]/.test(value.innerText) && value.innerText.split(" ").some((word) => word.length > LONGEST))
      broken.push(`a card says ${value.innerText}`);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const seen = texts.currentNode.textContent.trim() && element.checkVisibility({ opacityProperty: true });
    if (!seen || element.closest("script, style, noscript, :disabled")) continue;
    const found = contrast(element);
    if (found < CONTRAST) broken.push(`${found.toFixed(2)}: ${element.className}: ${texts.currentNode.textContent.trim()}`);
  }
  return [...new Set(broken)];
})();
